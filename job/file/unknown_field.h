#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace torchps {

// Helps a user who named a field that does not exist. Thread-safe.

// The paths of the job's fields with exactly this name: "learning_rate" is at
// "optimizer.learning_rate", as is "lr". Returns those on the highest level that has any, at most
// three.
std::vector<std::string> PlacesOfField(absl::string_view name);

// For an error about a field that `message` does not have: "did you mean optimizer.learning_rate?
// it has: epochs, batch_size, ..." for a field elsewhere in the job, else "did you mean
// \"epochs\"? ..." for the most similar one here.
std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name);

}  // namespace torchps
