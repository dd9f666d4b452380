#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// How far a job has come, which of that others may hear of, and for how long it has run; with it
// the revisions of the state that says so.
//
// Where the state is kept on a disk, a phase is told once it is there for good (OnSynced): a
// coordinator that came back to the phase before would wait for workers that have begun, or ended.
//
// Not thread-safe. Knows no clock: `now` is handed in and must not go back.
class JobPhase {
 public:
  explicit JobPhase(bool is_kept) : is_kept_(is_kept) {}

  JobStatus::Phase phase() const { return phase_; }
  // The latest one that others may hear of; GATHERING at first.
  JobStatus::Phase told() const { return told_; }

  void Enter(JobStatus::Phase phase, absl::Duration now);
  // From now on others may hear of the phase, if the disk has it or need not have it.
  void Tell();

  // Goes on where a state of this revision was saved; the job had run for `ran`.
  void Restore(JobStatus::Phase phase, uint64_t revision, absl::Duration ran, absl::Duration now);

  // From when it entered RUNNING to when it entered DONE, without the time for which no coordinator
  // had it.
  absl::Duration RunningTime(absl::Duration now) const;

  // Rises whenever the state would differ in more than its time.
  uint64_t revision() const { return revision_; }
  // The last one that changed something that must survive a power cut, too.
  uint64_t vital_revision() const { return vital_revision_; }
  void Changed() { ++revision_; }
  void ChangedVitally() { vital_revision_ = ++revision_; }
  // A state with at least this revision is on the disk for good.
  void OnSynced(uint64_t revision);

 private:
  const bool is_kept_;
  uint64_t revision_ = 0;
  uint64_t vital_revision_ = 0;
  uint64_t synced_revision_ = 0;

  JobStatus::Phase phase_ = JobStatus::NO_JOB;
  uint64_t phase_revision_ = 0;  // that has it
  JobStatus::Phase told_ = JobStatus::GATHERING;

  // How long the job had run when it stopped to wait for its workers.
  absl::Duration ran_before_;
  absl::Duration started_at_;
  absl::Duration ended_at_;
};

}  // namespace torchps
