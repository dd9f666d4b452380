#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace torchps {

// Reads a job file: YAML if the name ends in .yaml or .yml, JSON if it ends in .json, else
// Protobuf's text format. Nothing is filled in or checked yet (NormalizeJobSpec does that).
// INVALID_ARGUMENT: "jobs/mnist.textproto:7: ..." names the line, and for a field that does not
// exist its name and those there are. NOT_FOUND: no such file, or it cannot be read. Thread-safe.
absl::StatusOr<JobSpec> ParseJobFile(const std::string& path);

// The same in text format from memory; `source_name` stands in errors where a path would.
absl::StatusOr<JobSpec> ParseJobText(absl::string_view text, absl::string_view source_name);

}  // namespace torchps
