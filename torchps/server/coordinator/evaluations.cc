#include "torchps/server/coordinator/evaluations.h"

#include <algorithm>

#include "torchps/transport/evaluation_score.h"

namespace torchps {

void Evaluations::Open(int epoch, SlotId slot) { by_epoch_[epoch] = {slot, false, {}}; }

int Evaluations::TakeFor(SlotId slot) {
  for (auto& [epoch, evaluation] : by_epoch_) {
    if (evaluation.reported || (evaluation.slot != slot && evaluation.slot != -1)) continue;
    evaluation.slot = slot;
    return epoch;
  }
  return 0;
}

void Evaluations::Report(int epoch, const EvaluationResult& result) {
  Evaluation& evaluation = by_epoch_.at(epoch);
  evaluation.reported = true;
  evaluation.result = result;
}

bool Evaluations::WasReportedBy(SlotId slot, int epoch) const {
  const auto found = by_epoch_.find(epoch);
  return found != by_epoch_.end() && found->second.reported && found->second.slot == slot;
}

void Evaluations::Release(SlotId slot) {
  for (auto& [epoch, evaluation] : by_epoch_) {
    if (evaluation.slot == slot && !evaluation.reported) evaluation.slot = -1;
  }
}

bool Evaluations::AllReported() const {
  return std::all_of(by_epoch_.begin(), by_epoch_.end(),
                     [](const auto& entry) { return entry.second.reported; });
}

std::optional<double> Evaluations::BestScore() const {
  std::optional<double> best;
  for (const auto& [epoch, evaluation] : by_epoch_) {
    if (evaluation.reported) best = std::max(best, GetScore(evaluation.result, best_by_));
  }
  return best;
}

int Evaluations::EpochsWithoutBest(double min_delta) const {
  std::optional<double> best;
  int without = 0;
  for (const auto& [epoch, evaluation] : by_epoch_) {
    if (!evaluation.reported) continue;
    const std::optional<double> score = GetScore(evaluation.result, best_by_);
    if (score.has_value() && (!best.has_value() || *score > *best + min_delta)) {
      best = score;
      without = 0;
    } else {
      ++without;
    }
  }
  return without;
}

void Evaluations::AddResultsTo(JobStatus* status) const {
  for (const auto& [epoch, evaluation] : by_epoch_) {
    if (evaluation.reported) *status->add_evaluation() = evaluation.result;
  }
}

void Evaluations::SaveTo(CoordinatorState* state) const {
  for (const auto& [epoch, evaluation] : by_epoch_) {
    EvaluationState& saved = *state->add_evaluation();
    saved.set_epoch(epoch);
    saved.set_slot(evaluation.slot);
    saved.set_reported(evaluation.reported);
    *saved.mutable_result() = evaluation.result;
  }
}

void Evaluations::Restore(const EvaluationState& saved) {
  by_epoch_[saved.epoch()] = {saved.slot(), saved.reported(), saved.result()};
}

}  // namespace torchps
