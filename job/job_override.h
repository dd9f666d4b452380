#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace torchps {

// Sets one field of a job from the command line: `path.to.field=value`, the names of job.proto.
//
//   training.epochs=3            a number; true/false, yes/no, 1/0 for a bool
//   consistency.mode=sync        an enum's value by name, in any case
//   optimizer.adam.beta1=0.8     inside a oneof: adam takes the place of whatever was there
//   optimizer.kind=adam          the oneof itself: adam with its defaults, unless it is adam already
//   model.hidden=64              a list gets one more value; `model.hidden=` empties it first
//   optimizer.group.0.pattern=*  an element of a list of messages, or the one behind the last
//
// INVALID_ARGUMENT names the field, the value and what is allowed, and leaves `job` unspecified.
// Ranges are NormalizeJobSpec's business. Thread-compatible.
absl::Status ApplyOverride(JobSpec* job, absl::string_view assignment);

// The --set flags that a user meant who typed a job field as a flag of its own: for "batch-size" or
// "batch_size" "--set=training.batch_size=VALUE", several with " or " between. A path of fields is
// taken as it is. Empty: the job has no such field. Thread-safe.
std::string SetFlagFor(absl::string_view typed);

}  // namespace torchps
