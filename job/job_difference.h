#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace torchps {

// OK where two normalised jobs learn the same, else FAILED_PRECONDITION that names the first field
// in which they differ and what `mine_name` ("the running job") and `theirs_name` ("this worker")
// have there. data.path may differ, since it says where and not what; so may a total_steps that is
// 0 in `theirs`, since the coordinator, which completes the job, fills it in (CompleteJobSpec).
// Thread-safe.
absl::Status CheckSameJob(const JobSpec& mine, const JobSpec& theirs, absl::string_view mine_name,
                          absl::string_view theirs_name);

}  // namespace torchps
