#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace torchps {

// Reads a job from YAML, and so from JSON, which YAML includes. Keys are field names, also as JSON
// spells them (batchSize). A oneof is chosen by its member or by its own name: `adam: {}` and
// `kind: adam` are the same. Quotes are optional around every value.
// INVALID_ARGUMENT: "job.yaml:7: ..." names the line and the field. Thread-safe.
absl::StatusOr<JobSpec> ParseYamlJob(absl::string_view text, absl::string_view source_name);

}  // namespace torchps
