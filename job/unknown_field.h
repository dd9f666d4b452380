#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace torchps {

// What an error about a field that `message` does not have can offer: "did you mean \"epochs\"? it
// has: epochs, batch_size, ...", or "did you mean optimizer.learning_rate? ..." for a field that
// stands elsewhere in the job. Thread-safe.
std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name);

}  // namespace torchps
