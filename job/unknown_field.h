#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"

namespace torchps {

// One of `known` that `name` is probably a misspelling of: equal but for case, or a few edits away
// (Levenshtein 1966). Empty where none is near. Thread-safe.
std::string ClosestName(absl::string_view name, absl::Span<const std::string> known);

// What an error about a field that `message` does not have can offer: "did you mean \"epochs\"? it
// has: epochs, batch_size, ...". Thread-safe.
std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name);

}  // namespace torchps
