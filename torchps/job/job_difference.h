#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Field that differs between two jobs, with both values in text format.
struct JobDifference {
  std::string path;  // "training.epochs"
  std::string mine;
  std::string theirs;
};

// Returns the first field, in the order of job.proto, that makes two normalised jobs train
// differently, or nullopt if there is none. Ignores data.path and model.init_from, because they are
// only locations. Also ignores total_steps and local.steps if they are 0 in `theirs`, because the
// coordinator fills them in (CompleteJobSpec). Thread-safe, like the next function.
std::optional<JobDifference> FirstJobDifference(const JobSpec& mine, const JobSpec& theirs);

// Returns all fields that differ between two normalised jobs, in the order of job.proto. Leaves out
// data.preprocessing and data.use, which the first worker fills in.
std::vector<JobDifference> AllJobDifferences(const JobSpec& mine, const JobSpec& theirs);

// Returns OK if FirstJobDifference finds none. Otherwise returns FAILED_PRECONDITION, naming the
// field and both values. `mine_name` ("the running job") and `theirs_name` ("this worker") name the
// jobs.
absl::Status CheckSameJob(const JobSpec& mine, const JobSpec& theirs, absl::string_view mine_name,
                          absl::string_view theirs_name);

// Returns OK if a stopped job may resume as `now`. These fields may change: epochs and pushes,
// learning rate, weight decay, schedule, clipping, staleness bound, lag contract, encodings, lease
// and checkpoint intervals, and the number of workers if the workers share each batch. For any
// other change, returns FAILED_PRECONDITION, naming the first changed field, both values, and the
// reason. REQUIRES: both jobs are normalised. Thread-safe.
absl::Status CheckMayResume(const JobSpec& before, const JobSpec& now);

}  // namespace torchps
