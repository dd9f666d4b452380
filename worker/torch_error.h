#pragma once

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Converts an exception of torch, or of user code based on it, to INTERNAL with the message "`what`
// failed: " and the first line of the exception's message. The other lines are dropped: torch
// appends a backtrace, and CUDA debugging advice.
absl::Status TorchError(absl::string_view what, const std::exception& error);

// The same for the current exception. User code may throw other types than std::exception.
// REQUIRES: called in a catch block.
absl::Status ThrownError(absl::string_view what);

}  // namespace torchps
