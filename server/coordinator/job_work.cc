#include "server/coordinator/job_work.h"

#include <optional>

#include "server/coordinator/saved_state.h"

namespace torchps {
namespace {

DataLeases::Options LeaseOptions(const JobTerms& terms) {
  const TrainingSpec& training = terms.job.training();
  DataLeases::Options options;
  options.samples = terms.train_samples;
  options.epochs = training.epochs();
  options.push_samples = int64_t{training.batch_size()} * training.accumulate();
  options.lease_samples = terms.job.consistency().mode() == ConsistencySpec::SYNC
                              ? options.push_samples
                              : int64_t{training.batch_size()} * training.lease_batches();
  options.max_pushes = training.max_pushes();
  return options;
}

}  // namespace

JobWork::JobWork(const JobTerms& terms, bool keeps_models)
    : stopping_(terms.job.training().early_stopping()),
      evaluates_(terms.job.training().evaluate()),
      keeps_models_(keeps_models),
      leases_(LeaseOptions(terms)),
      evaluations_(terms.job.training().best_by()) {}

bool JobWork::HandOut(MemberState* member, NextWorkReply* reply) {
  if (const int epoch = evaluations_.TakeFor(member->slot()); epoch > 0) {
    member->set_evaluating(epoch);
    member->set_state(SlotBooks::EVALUATING);
    reply->set_evaluate_epoch(epoch);
    if (keeps_models_) {
      KeepModel& keep = *reply->mutable_keep_model();
      keep.set_final(MayBeLast(epoch));
      if (const std::optional<double> best = evaluations_.BestScore()) keep.set_best_score(*best);
    }
    return true;
  }
  const std::optional<DataLeases::Lease> lease =
      leases_.Take({member->slot(), member->incarnation()});
  if (!lease.has_value()) return false;
  member->set_lease(lease->id);
  member->set_epoch(lease->range.epoch);
  member->set_state(SlotBooks::TRAINING);
  DataLease& given = *reply->mutable_lease();
  given.set_id(lease->id);
  given.set_epoch(lease->range.epoch);
  given.set_begin(lease->range.begin);
  given.set_end(lease->range.end);
  given.set_reissued(lease->reissued);
  return true;
}

absl::Status JobWork::Finish(uint64_t lease, SlotHolder holder, const StepFigures& figures,
                             absl::Duration running) {
  const absl::StatusOr<DataLeases::Finished> outcome = leases_.Finish(lease, holder);
  if (!outcome.ok()) return outcome.status();
  if (!outcome->counted) return absl::OkStatus();
  EpochFigures& epoch = figures_[outcome->epoch];
  epoch.loss_sum += figures.loss_sum();
  epoch.loss_samples += figures.samples();
  if (outcome->closed_epoch) {
    epoch.closed_at = running;
    const bool hands_in = keeps_models_ && leases_.Complete();
    if (evaluates_ || hands_in) evaluations_.Open(outcome->epoch, holder.slot);
  }
  return absl::OkStatus();
}

void JobWork::Report(const EvaluationResult& result) {
  evaluations_.Report(result.epoch(), result);
  StopWithoutBest(stopping_.patience());
}

void JobWork::StopWithoutBest(int at_least) {
  if (stopping_.patience() == 0 || stopped_after_ > 0 || leases_.Complete()) return;
  const int without = evaluations_.EpochsWithoutBest(stopping_.min_delta());
  if (without < at_least) return;
  stopped_after_ = without;
  // An epoch that had begun, and of which nothing is out: no lease's end will close it.
  if (const int closed = leases_.Stop(); closed > 0) evaluations_.Open(closed, /*slot=*/-1);
}

bool JobWork::MayBeLast(int epoch) const {
  if (epoch != evaluations_.latest()) return false;
  if (leases_.Complete()) return true;
  // This one may be the last straw. Where a later epoch has begun, that one's end hands in.
  return stopping_.patience() > 0 &&
         evaluations_.EpochsWithoutBest(stopping_.min_delta()) + 1 >= stopping_.patience();
}

void JobWork::Release(SlotHolder dead) {
  leases_.Release(dead);
  evaluations_.Release(dead.slot);
}

void JobWork::Describe(JobStatus* status) const {
  for (const DataLeases::Books& books : leases_.books()) {
    EpochBooks& epoch = *status->add_epoch();
    epoch.set_epoch(books.epoch);
    epoch.set_samples(books.samples);
    epoch.set_used(books.used);
    epoch.set_reissued(books.reissued);
    epoch.set_outstanding(books.outstanding);
    epoch.set_closed(books.closed);
    const auto figures = figures_.find(books.epoch);
    if (figures == figures_.end()) continue;
    if (figures->second.loss_samples > 0) {
      epoch.set_train_loss(figures->second.loss_sum /
                           static_cast<double>(figures->second.loss_samples));
    }
    if (books.closed) epoch.set_closed_at_seconds(absl::ToDoubleSeconds(figures->second.closed_at));
  }
  evaluations_.AddResultsTo(status);
}

void JobWork::SaveTo(CoordinatorState* state) const {
  *state->mutable_leases() = leases_.Save();
  evaluations_.SaveTo(state);
  for (const auto& [epoch, figures] : figures_) {
    EpochFiguresState& saved = *state->add_epoch_figures();
    saved.set_epoch(epoch);
    saved.set_loss_sum(figures.loss_sum);
    saved.set_loss_samples(figures.loss_samples);
    saved.set_closed_at_seconds(absl::ToDoubleSeconds(figures.closed_at));
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
  StopWithoutBest(stopping_.patience());
  return absl::OkStatus();
}

}  // namespace torchps
