#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Tracks the phase of a job, the phase that may be published, the running time, and the revisions
// of the coordinator state.
//
// A phase is published when answers may show it to workers. If the state is saved on disk, this
// happens only after the state with that phase is synced (OnSynced). Otherwise a coordinator could
// restart in the previous phase and wait for workers that already train or have ended.
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
  void Publish();

  // Continues from a state saved at this revision. `ran` is the running time at that point.
  void Restore(JobStatus::Phase phase, uint64_t revision, absl::Duration ran, absl::Duration now);

  // Returns the time since the job entered RUNNING, at most until it entered DONE. Times without a
  // coordinator do not count.
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

  // Running time in the restored state; 0 for a new job.
  absl::Duration ran_before_;
  absl::Duration started_at_;
  absl::Duration ended_at_;
};

// The terms of a job, on which all workers must agree. Value type.
struct JobTerms {
  JobSpec job;  // normalised
  ModelLayout layout;
  int64_t train_samples = 0;
  int64_t state_bytes = 0;           // as in JoinRequest; the first worker's, not compared
  DataFingerprint data_fingerprint;  // zero parts are unknown and not compared
  int server_count = 0;
  // Descriptions for users. They may differ between workers.
  std::string model;
  std::string data;

  // Reads the terms from a worker's Join request.
  //   FAILED_PRECONDITION  the protocol versions differ; the message names both
  //   INVALID_ARGUMENT     a job field, the layout or the server count is invalid; the message
  //                        names it
  static absl::StatusOr<JobTerms> FromJoin(const JoinRequest& request);

  // Reads the terms from a saved state. Returns DATA_LOSS if SaveTo() cannot have written it.
  static absl::StatusOr<JobTerms> FromState(const CoordinatorState& state);
  void SaveTo(CoordinatorState* state) const;

  // Returns the terms with which a stopped job continues when `joiner` joins. The result uses the
  // joiner's job, completed by CompleteJobSpec(), and the joiner's server count. Returns
  // FAILED_PRECONDITION if the joiner changed a field that must not change; the message names the
  // field and the reason.
  absl::StatusOr<JobTerms> ResumeWith(const JobTerms& joiner) const;

  // Returns FAILED_PRECONDITION if the joiner's terms differ from these. The message names the
  // first difference and both values. These terms may be completed (torchps/job/job_spec.h); the
  // joiner's must not be.
  absl::Status CheckSame(const JobTerms& joiner) const;
};

}  // namespace torchps
