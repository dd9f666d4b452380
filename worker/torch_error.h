#pragma once

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace torchps {

// The status of what torch, or a user's code on top of it, has thrown: INTERNAL, "`what` failed: "
// and the first line of the message. Torch adds a backtrace to it, and CUDA's errors advice on
// debugging, over many lines.
absl::Status TorchError(absl::string_view what, const std::exception& error);

// The same for whatever is being handled: a user's code may throw what is no std::exception.
// REQUIRES: called in a catch block.
absl::Status ThrownError(absl::string_view what);

}  // namespace torchps
