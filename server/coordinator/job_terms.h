#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/data_fingerprint.h"
#include "common/model_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"

namespace torchps {

// What all workers of a job must agree on. A plain value.
struct JobTerms {
  JobSpec job;  // normalised
  ModelLayout layout;
  int64_t train_samples = 0;
  DataFingerprint data_fingerprint;  // where it is not known, nothing is compared
  int server_count = 0;
  // In words, for people; those of two workers may differ.
  std::string model;
  std::string data;

  // Reads them out of what a worker brings to Join.
  //   FAILED_PRECONDITION  another protocol version: names both
  //   INVALID_ARGUMENT     a job field, the layout or the number of servers is not valid: names it
  static absl::StatusOr<JobTerms> FromJoin(const JoinRequest& request);

  // Reads them out of what SaveTo() has written. DATA_LOSS: such terms cannot have been saved.
  static absl::StatusOr<JobTerms> FromState(const CoordinatorState& state);
  void SaveTo(CoordinatorState* state) const;

  // What a job of these terms that was stopped goes on with, now that a worker joins it again: the
  // joiner's job, completed, on the joiner's number of servers. FAILED_PRECONDITION names what may
  // not change, and why.
  absl::StatusOr<JobTerms> ResumeWith(const JobTerms& joiner) const;

  // OK, or FAILED_PRECONDITION that names the first thing in which a joiner's terms differ from
  // these, and what each side has there. These may be completed (job/job_spec.h), the joiner's
  // not.
  absl::Status CheckSame(const JobTerms& joiner) const;
};

}  // namespace torchps
