#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Reads a job file: YAML if the name ends in .yaml or .yml, JSON if it ends in .json, otherwise
// Protobuf's text format. Does not set defaults or validate fields (see NormalizeJobSpec). Returns
// INVALID_ARGUMENT, as in "jobs/mnist.textproto:7: ...", naming the line; for an unknown field also
// the field and the known fields. Returns NOT_FOUND if the file cannot be read. Thread-safe.
absl::StatusOr<JobSpec> ParseJobFile(const std::string& path);

// Parses a job in text format from memory. `source_name` replaces the path in errors.
absl::StatusOr<JobSpec> ParseJobText(absl::string_view text, absl::string_view source_name);

// Sets one job field from the command line: `path.to.field=value`, with the names of job.proto.
//
//   training.epochs=3            a number; true/false, yes/no, 1/0 for a bool
//   consistency.mode=sync        an enum value by name, in any case
//   optimizer.adam.beta1=0.8     inside a oneof: adam replaces the member that was set
//   optimizer.kind=adam          the oneof: adam with defaults, unless adam is set already
//   model.hidden=64,32           replaces a list; `model.hidden=` empties it
//   optimizer.group.0.pattern=*  an element of a list of messages, or a new element behind the last
//
// Returns INVALID_ARGUMENT, naming the field, the value and the allowed values; `job` is then
// unspecified. Does not check ranges (see NormalizeJobSpec). Thread-compatible.
absl::Status ApplyOverride(JobSpec* job, absl::string_view assignment);

// Suggests --set flags for a job field that the user typed as a flag. For "batch-size" or
// "batch_size" returns "--set=training.batch_size=VALUE"; joins several suggestions with " or ".
// Accepts a field path unchanged. Returns an empty string if no job field matches. Thread-safe.
std::string SetFlagFor(absl::string_view typed);

}  // namespace torchps
