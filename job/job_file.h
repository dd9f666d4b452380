#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace torchps {

// Reads a job file: YAML if the name ends in .yaml or .yml, JSON if it ends in .json, otherwise
// Protobuf's text format. Neither sets defaults nor validates (see NormalizeJobSpec). Returns
// INVALID_ARGUMENT, as in "jobs/mnist.textproto:7: ...", naming the line; for an unknown field also
// the field and the known fields. Returns NOT_FOUND if the file cannot be read. Thread-safe.
absl::StatusOr<JobSpec> ParseJobFile(const std::string& path);

// Parses a job in text format from memory. `source_name` replaces the path in errors.
absl::StatusOr<JobSpec> ParseJobText(absl::string_view text, absl::string_view source_name);

}  // namespace torchps
