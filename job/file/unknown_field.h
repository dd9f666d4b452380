#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace torchps {

// Suggestions for a user who named a field that does not exist. Thread-safe.

// Returns the paths of the job fields with exactly this name: "optimizer.learning_rate" for
// "learning_rate", and for the abbreviation "lr". Returns only the matches on the highest level, at
// most three.
std::vector<std::string> PlacesOfField(absl::string_view name);

// Describes the fields of `message` after the user named an unknown one. If the job contains the
// field elsewhere, returns "did you mean optimizer.learning_rate? it has: epochs, batch_size, ...".
// Otherwise suggests the most similar field of `message`.
std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name);

}  // namespace torchps
