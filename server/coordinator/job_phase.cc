#include "server/coordinator/job_phase.h"

#include <algorithm>

namespace torchps {

void JobPhase::Enter(JobStatus::Phase phase, absl::Duration now) {
  phase_ = phase;
  ChangedVitally();
  phase_revision_ = revision_;
  if (phase == JobStatus::RUNNING) started_at_ = now - ran_before_;
  if (phase == JobStatus::DONE) ended_at_ = now;
}

void JobPhase::Tell() {
  if (!is_kept_ || synced_revision_ >= phase_revision_) told_ = phase_;
}

void JobPhase::Restore(JobStatus::Phase phase, uint64_t revision, absl::Duration ran,
                       absl::Duration now) {
  revision_ = revision;
  ChangedVitally();
  phase_ = phase;
  // OnSynced() reports when this revision is synced.
  phase_revision_ = revision;
  ran_before_ = ran;
  started_at_ = now - ran;
  ended_at_ = now;
}

absl::Duration JobPhase::RunningTime(absl::Duration now) const {
  if (phase_ < JobStatus::RUNNING) return ran_before_;
  return (phase_ == JobStatus::DONE ? ended_at_ : now) - started_at_;
}

void JobPhase::OnSynced(uint64_t revision) {
  synced_revision_ = std::max(synced_revision_, revision);
}

}  // namespace torchps
