#pragma once

#include "absl/strings/string_view.h"

namespace torchps {

// Whether all of `text` matches the shell-style `pattern`: '*' is any run of
// characters, also an empty one and also across dots, '?' is any one character,
// every other character is itself (there is no escape and no bracket).
// O(pattern * text) time at worst, no memory. Thread-safe.
bool GlobMatches(absl::string_view pattern, absl::string_view text);

}  // namespace torchps
