#include "torchps/server/coordinator/job_work.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "torchps/job/local_steps.h"
#include "torchps/server/coordinator/resumed_state.h"

namespace torchps {
namespace {

// A slot stops waiting for the next step after this many times the longest step of any slot, but
// not before kLeastWait.
constexpr double kStepsOfWait = 1.5;
constexpr absl::Duration kLeastWait = absl::Milliseconds(50);

// Returns the samples of a step of all slots together; 0 if each slot makes separate steps.
int64_t SamplesOfStep(const JobSpec& job) {
  return job.training().global_batch() && LeasesArePushes(job) ? SamplesOfPush(job) : 0;
}

DataLeases::Options LeaseOptions(const JobTerms& terms) {
  DataLeases::Options options;
  options.samples = terms.train_samples;
  options.epochs = terms.job.training().epochs();
  options.max_pushes = terms.job.training().max_pushes();
  options.step_samples = SamplesOfStep(terms.job);
  return options;
}

}  // namespace

JobWork::JobWork(const JobTerms& terms, bool keeps_models)
    : stopping_(terms.job.training().early_stopping()),
      evaluates_(terms.job.training().evaluate()),
      keeps_models_(keeps_models),
      evaluators_rest_(terms.job.consistency().mode() != ConsistencySpec::SYNC),
      training_(terms.job.training()),
      passes_of_push_(PassesOfPush(terms.job)),
      pushes_of_lease_(
          LeasesArePushes(terms.job) ? 1 : training_.lease_batches() / training_.accumulate()),
      samples_of_step_(SamplesOfStep(terms.job)),
      balancer_(training_, std::max(terms.job.workers(), 1)),
      leases_(LeaseOptions(terms)),
      evaluations_(terms.job.training().best_by()) {}

bool JobWork::HandOut(MemberState* member, NextWorkReply* reply) {
  const SlotId slot = member->slot();
  const bool has_waited = AwaitsStep(slot) || balancer_.IsOutsidePlan(slot);
  if (HasNoPart(slot)) {
    if (HandOutEvaluation(member, reply)) return true;
    awaiting_.try_emplace(slot);
    balancer_.AwaitPlan(slot);
    return false;
  }
  awaiting_.erase(slot);
  // If this slot evaluated now, the update of the current step would lack its share.
  const bool trains_first = samples_of_step_ > 0 && evaluators_rest_ && leases_.HasOutstanding() &&
                            balancer_.HasShare(slot);
  if (trains_first && HandOutLease(member, has_waited, reply)) return true;
  if (HandOutEvaluation(member, reply)) return true;
  // If no step is in progress, the next step begins with this slot.
  if (!leases_.HasOutstanding() && balancer_.IsOutsidePlan(slot)) balancer_.AwaitPlan(slot);
  if (HandOutLease(member, has_waited, reply)) return true;
  balancer_.Rest(slot);
  return false;
}

bool JobWork::HandOutEvaluation(MemberState* member, NextWorkReply* reply) {
  const int epoch = evaluations_.TakeFor(member->slot());
  if (epoch == 0) return false;
  member->set_evaluating(epoch);
  member->set_state(SlotAccounting::EVALUATING);
  reply->set_evaluate_epoch(epoch);
  if (keeps_models_) {
    KeepModel& keep = *reply->mutable_keep_model();
    keep.set_final(MayBeLast(epoch));
    if (const std::optional<double> best = evaluations_.BestScore()) keep.set_best_score(*best);
  }
  awaiting_.erase(member->slot());
  if (evaluators_rest_) balancer_.Rest(member->slot());
  return true;
}

bool JobWork::EndLongWaits(absl::Duration now) {
  const absl::Duration longest =
      std::max(kLeastWait, kStepsOfWait * static_cast<double>(passes_of_push_) *
                               absl::Seconds(balancer_.LongestPass()));
  bool any = false;
  for (auto& [slot, wait] : awaiting_) {
    if (!wait.since.has_value()) wait.since = now;
    if (wait.is_over || now - *wait.since < longest) continue;
    wait.is_over = any = true;
  }
  return any;
}

bool JobWork::HasNoPart(SlotId slot) const {
  // In SYNC each slot has a part, because the round waits for it. Returned samples may go to any
  // slot.
  if (samples_of_step_ == 0 || !evaluators_rest_ || leases_.HasReturned()) return false;
  if (!leases_.HasMore() || !leases_.HasOutstanding()) return false;
  const auto wait = awaiting_.find(slot);
  if (wait != awaiting_.end() && wait->second.is_over) return false;
  return balancer_.IsOutsidePlan(slot) ||
         (leases_.LastStepIsOut() && MissesLastStep(slot, leases_.latest_epoch()));
}

bool JobWork::MissesLastStep(SlotId slot, int epoch) const {
  const auto found = last_step_of_.find(slot);
  return leases_.HasLastStep() && (found == last_step_of_.end() || found->second != epoch);
}

bool JobWork::HandOutLease(MemberState* member, bool has_waited, NextWorkReply* reply) {
  if (!leases_.HasMore()) return false;
  int batch_size = balancer_.BatchFor(member->slot());
  const DataLeases::Size size{batch_size * passes_of_push_, pushes_of_lease_};
  const std::optional<DataLeases::Lease> lease =
      leases_.Take({member->slot(), member->incarnation()}, size);
  if (!lease.has_value()) return false;
  // Use three returned samples in one push. Otherwise the second push would contain a single
  // sample, on which batch norm fails.
  if (lease->reissued && lease->range.size() == 3 && batch_size == 2) batch_size = 3;
  // Tell the slot to pull again if other slots may have made an update since the last pull.
  const bool is_first_of_epoch = member->epoch() < lease->range.epoch && lease->range.epoch > 1;
  const bool pull_again =
      has_waited || (is_first_of_epoch && MissesLastStep(member->slot(), lease->range.epoch - 1));
  if (lease->share > 0) last_step_of_[member->slot()] = lease->range.epoch;
  member->set_lease(lease->id);
  member->set_epoch(lease->range.epoch);
  member->set_state(SlotAccounting::TRAINING);
  DataLease& given = *reply->mutable_lease();
  given.set_id(lease->id);
  given.set_epoch(lease->range.epoch);
  given.set_begin(lease->range.begin);
  given.set_end(lease->range.end);
  given.set_reissued(lease->reissued);
  member->set_batch_size(batch_size);
  given.set_batch_size(batch_size);
  given.set_progress_begin(lease->progress_begin);
  given.set_progress_end(lease->progress_end);
  given.set_share(lease->share);
  given.set_pull_again(pull_again);
  return true;
}

absl::Status JobWork::Finish(const NextWorkRequest& handed_in, absl::Duration running) {
  const SlotHolder holder{handed_in.slot(), handed_in.incarnation()};
  std::vector<DataLeases::Part> lost;
  for (const LeaseRange& range : handed_in.lost()) lost.push_back({range.begin(), range.end()});
  const absl::StatusOr<DataLeases::Finished> outcome =
      leases_.Finish(handed_in.finished_lease(), holder, lost);
  if (!outcome.ok()) return outcome.status();
  if (!outcome->counted) return absl::OkStatus();
  const StepFigures& figures = handed_in.figures();
  balancer_.Observe(holder.slot, figures.samples() + figures.lost_samples(),
                    figures.compute_seconds() + figures.data_seconds());
  EpochFigures& epoch = figures_[outcome->epoch];
  epoch.loss_sum += figures.loss_sum();
  epoch.loss_samples +=
      figures.samples() - std::min(figures.samples(), figures.samples_without_loss());
  if (outcome->closed_epoch) {
    epoch.closed_at = running;
    const bool hands_in = keeps_models_ && leases_.Complete();
    // If other slots already train on the next step, they may need this slot's share. So the first
    // slot that asks for a later step evaluates, because no shares are planned for that step yet.
    const bool trains_on = samples_of_step_ > 0 && evaluators_rest_ && leases_.HasOutstanding();
    if (evaluates_ || hands_in) {
      evaluations_.Open(outcome->epoch, trains_on ? -1 : holder.slot);
      // This slot will evaluate. Exclude it from the next plan now, because another slot may begin
      // that plan before this slot asks for work.
      if (evaluators_rest_ && !trains_on) balancer_.Rest(holder.slot);
    }
  }
  return absl::OkStatus();
}

void JobWork::Report(const EvaluationResult& result) {
  evaluations_.Report(result.epoch(), result);
  // If all leases of the current epoch are finished already, the early stop itself closes the
  // epoch. So the evaluation is opened here and not by Finish().
  if (const int closed = StopWithoutBest(); closed > 0) evaluations_.Open(closed, /*slot=*/-1);
}

int JobWork::StopWithoutBest() {
  if (stopping_.patience() == 0 || stopped_after_ > 0 || leases_.Complete()) return 0;
  const int without = evaluations_.EpochsWithoutBest(stopping_.min_delta());
  if (without < stopping_.patience()) return 0;
  stopped_after_ = without;
  return leases_.Stop();
}

bool JobWork::MayBeLast(int epoch) const {
  if (epoch != evaluations_.latest()) return false;
  if (leases_.Complete()) return true;
  // This evaluation may trigger early stopping. If a later epoch has begun, the final model is
  // uploaded after that epoch instead.
  return stopping_.patience() > 0 &&
         evaluations_.EpochsWithoutBest(stopping_.min_delta()) + 1 >= stopping_.patience();
}

void JobWork::Release(SlotHolder dead) {
  leases_.Release(dead);
  awaiting_.erase(dead.slot);
  last_step_of_.erase(dead.slot);
  balancer_.Remove(dead.slot);
  evaluations_.Release(dead.slot);
}

void JobWork::Describe(JobStatus* status) const {
  for (const DataLeases::Books& accounting : leases_.accounting()) {
    EpochAccounting& epoch = *status->add_epoch();
    epoch.set_epoch(accounting.epoch);
    epoch.set_samples(accounting.samples);
    epoch.set_used(accounting.used);
    epoch.set_reissued(accounting.reissued);
    epoch.set_lost(accounting.lost);
    epoch.set_outstanding(accounting.outstanding);
    epoch.set_closed(accounting.closed);
    const auto figures = figures_.find(accounting.epoch);
    if (figures == figures_.end()) continue;
    if (figures->second.loss_samples > 0) {
      epoch.set_train_loss(figures->second.loss_sum /
                           static_cast<double>(figures->second.loss_samples));
    } else if (accounting.used > 0) {
      // Use NaN, because reports would show 0 as the best loss.
      epoch.set_train_loss(std::numeric_limits<double>::quiet_NaN());
    }
    if (accounting.closed)
      epoch.set_closed_at_seconds(absl::ToDoubleSeconds(figures->second.closed_at));
  }
  evaluations_.AddResultsTo(status);
}

void JobWork::SaveTo(CoordinatorState* state) const {
  *state->mutable_leases() = leases_.Save();
  state->set_epochs_without_best(stopped_after_);
  evaluations_.SaveTo(state);
  for (const auto& [epoch, figures] : figures_) {
    EpochFiguresState& saved = *state->add_epoch_figures();
    saved.set_epoch(epoch);
    saved.set_loss_sum(figures.loss_sum);
    saved.set_loss_samples(figures.loss_samples);
    saved.set_closed_at_seconds(absl::ToDoubleSeconds(figures.closed_at));
  }
  for (const auto& [slot, batch] : balancer_.Save()) {
    BatchState& saved = *state->add_batch();
    saved.set_slot(slot);
    saved.set_batch_size(batch);
  }
}

absl::Status JobWork::Restore(const CoordinatorState& state) {
  if (absl::Status status = leases_.Restore(state.leases()); !status.ok()) return status;
  const auto is_epoch = [&](int epoch) {
    return epoch >= 1 && epoch <= state.leases().epoch_size();
  };
  for (const EvaluationState& saved : state.evaluation()) {
    if (!is_epoch(saved.epoch())) return DamagedState("an evaluation of epoch ", saved.epoch());
    evaluations_.Restore(saved);
  }
  for (const EpochFiguresState& saved : state.epoch_figures()) {
    if (!is_epoch(saved.epoch())) return DamagedState("figures of epoch ", saved.epoch());
    EpochFigures& figures = figures_[saved.epoch()];
    figures.loss_sum = saved.loss_sum();
    figures.loss_samples = saved.loss_samples();
    figures.closed_at = absl::Seconds(saved.closed_at_seconds());
  }
  std::map<SlotId, int> batches;
  for (const BatchState& saved : state.batch()) {
    if (saved.batch_size() < 1) {
      return DamagedState("slot ", saved.slot(), " has a batch of ", saved.batch_size());
    }
    batches[saved.slot()] = saved.batch_size();
  }
  balancer_.Restore(batches);
  // An early stop stays in effect, even if an evaluation that was running at the time of the stop
  // was a new best. If the stop closed an epoch, the evaluation of that epoch may be open already.
  int closed = 0;
  if (state.epochs_without_best() > 0 && stopping_.patience() > 0) {
    stopped_after_ = state.epochs_without_best();
    closed = leases_.Stop();
  } else {
    closed = StopWithoutBest();
  }
  if (closed > 0 && !evaluations_.has(closed)) evaluations_.Open(closed, /*slot=*/-1);
  return absl::OkStatus();
}

}  // namespace torchps
