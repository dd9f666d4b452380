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

// The terms of a job, on which all workers must agree. Value type.
struct JobTerms {
  JobSpec job;  // normalised
  ModelLayout layout;
  int64_t train_samples = 0;
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
  // joiner's job, completed, and the joiner's server count. Returns FAILED_PRECONDITION if the
  // joiner changed a field that must not change; the message names the field and the reason.
  absl::StatusOr<JobTerms> ResumeWith(const JobTerms& joiner) const;

  // Returns FAILED_PRECONDITION if the joiner's terms differ from these. The message names the
  // first difference and both values. These terms may be completed (job/job_spec.h); the joiner's
  // must not be.
  absl::Status CheckSame(const JobTerms& joiner) const;
};

}  // namespace torchps
