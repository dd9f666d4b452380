#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// Tracks the phase of a job, the phase that may be published, the running time, and the revisions
// of the coordinator state.
//
// If the state is saved on disk, a phase is published only after it is synced (OnSynced). Otherwise
// a coordinator that restarts in the previous phase would wait for workers that already began or
// ended.
//
// Not thread-safe. Does not read a clock: the caller passes `now`, which must not decrease.
class JobPhase {
 public:
  explicit JobPhase(bool is_kept) : is_kept_(is_kept) {}

  JobStatus::Phase phase() const { return phase_; }
  // Returns the latest published phase; initially GATHERING.
  JobStatus::Phase told() const { return told_; }

  void Enter(JobStatus::Phase phase, absl::Duration now);
  // Publishes the current phase, if it is synced or the state is not saved.
  void Tell();

  // Continues from a state saved at this revision. `ran` is the running time at that point.
  void Restore(JobStatus::Phase phase, uint64_t revision, absl::Duration ran, absl::Duration now);

  // Returns the time from entering RUNNING to entering DONE, excluding the time without a
  // coordinator.
  absl::Duration RunningTime(absl::Duration now) const;

  // Rises with each change of the state, except for changes of the time.
  uint64_t revision() const { return revision_; }
  // Returns the last revision with a change that must survive a power failure.
  uint64_t vital_revision() const { return vital_revision_; }
  void Changed() { ++revision_; }
  void ChangedVitally() { vital_revision_ = ++revision_; }
  // Records that a state with at least this revision is synced.
  void OnSynced(uint64_t revision);

 private:
  const bool is_kept_;
  uint64_t revision_ = 0;
  uint64_t vital_revision_ = 0;
  uint64_t synced_revision_ = 0;

  JobStatus::Phase phase_ = JobStatus::NO_JOB;
  uint64_t phase_revision_ = 0;  // revision of the last phase change
  JobStatus::Phase told_ = JobStatus::GATHERING;

  // Running time at the last stop of the job.
  absl::Duration ran_before_;
  absl::Duration started_at_;
  absl::Duration ended_at_;
};

}  // namespace torchps
