// What a job tells of itself: the books of its epochs and slots, its evaluations, its checkpoints.

#include <utility>

#include "server/coordinator/job_coordinator.h"

namespace torchps {

JobCoordinator::ParkedCall JobCoordinator::GetJobStatus(const JobStatusRequest& request,
                                                        absl::Duration now,
                                                        Reply<JobStatus> reply) {
  Tick(now);
  if (!request.wait_until_done() || told_phase_ == JobStatus::DONE) {
    ready_.Add<JobStatus>(std::move(reply), Describe(now));
    return 0;
  }
  parked_status_.push_back({++last_parked_, std::move(reply)});
  return last_parked_;
}

JobStatus JobCoordinator::Describe(absl::Duration now) const {
  JobStatus status;
  status.set_coordinator_life(life_);
  status.set_phase(told_phase_);
  if (phase_ == JobStatus::NO_JOB) return status;
  status.set_job_id(job_id_);
  *status.mutable_job() = terms_->job;
  status.set_running_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  status.set_parameters(terms_->layout.trained_size());
  for (const DataLeases::Books& books : leases_->books()) {
    EpochBooks& epoch = *status.add_epoch();
    epoch.set_epoch(books.epoch);
    epoch.set_samples(books.samples);
    epoch.set_used(books.used);
    epoch.set_reissued(books.reissued);
    epoch.set_outstanding(books.outstanding);
    epoch.set_closed(books.closed);
    const auto figures = epoch_figures_.find(books.epoch);
    if (figures == epoch_figures_.end()) continue;
    if (figures->second.loss_samples > 0) {
      epoch.set_train_loss(figures->second.loss_sum /
                           static_cast<double>(figures->second.loss_samples));
    }
    if (books.closed) epoch.set_closed_at_seconds(absl::ToDoubleSeconds(figures->second.closed_at));
  }
  for (const auto& [slot, member] : members_) {
    SlotBooks& books = *status.add_slot();
    books.set_slot(slot);
    books.set_incarnation(member.incarnation);
    books.set_host(member.host);
    books.set_device(member.device);
    books.set_state(member.state);
    *books.mutable_figures() = member.figures;
    books.set_epoch(member.epoch);
    books.set_reason(member.reason);
  }
  evaluations_.AddResultsTo(&status);
  *status.mutable_checkpoint() = schedule_->memory().status;
  status.mutable_checkpoint()->set_enabled(has_directory_ && durable());
  status.set_resumed_checkpoint(resumed_checkpoint_);
  status.set_stopped(stopped_);
  return status;
}

}  // namespace torchps
