#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Reads a job from YAML or JSON (a subset of YAML). Keys are field names, also in JSON's spelling
// (batchSize). A oneof is set by its member or by its name: `adam: {}` and `kind: adam` are
// equivalent. Quotes around values are optional. Returns INVALID_ARGUMENT, as in "job.yaml:7: ...",
// naming the line and the field. Thread-safe.
absl::StatusOr<JobSpec> ParseYamlJob(absl::string_view text, absl::string_view source_name);

}  // namespace torchps
