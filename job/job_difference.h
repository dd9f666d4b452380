#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/job.pb.h"

namespace torchps {

// A field in which two jobs differ, and what each has there, as the text format writes it.
struct JobDifference {
  std::string path;  // "training.epochs"
  std::string mine;
  std::string theirs;
};

// The first field, in the order of job.proto, in which two normalised jobs do not learn the same;
// nothing: they do. data.path and model.init_from may differ, since they say where and not what; so
// may a total_steps that is 0 in `theirs`, since the coordinator, which completes the job, fills it
// in (CompleteJobSpec). Thread-safe, as the next one.
absl::optional<JobDifference> FirstJobDifference(const JobSpec& mine, const JobSpec& theirs);

// Returns every field in which two normalised jobs differ, in the order of job.proto. Leaves out
// data.preprocessing and data.use, which the first worker fills in.
std::vector<JobDifference> AllJobDifferences(const JobSpec& mine, const JobSpec& theirs);

// OK where there is none, else FAILED_PRECONDITION that names it and what `mine_name` ("the running
// job") and `theirs_name` ("this worker") have there.
absl::Status CheckSameJob(const JobSpec& mine, const JobSpec& theirs, absl::string_view mine_name,
                          absl::string_view theirs_name);

}  // namespace torchps
