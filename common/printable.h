#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace torchps {

// `text` as a terminal may be given it, for what another process chose: every control character,
// with which it could move the cursor, forge lines or rename the window, is a '?'. So is a byte
// that is no UTF-8, which some terminals take for one. All else stays as it is.
std::string Printable(absl::string_view text);

// Returns the bytes of the UTF-8 character at the start of `text`, or 0 if they are not UTF-8.
// REQUIRES: `text` is not empty.
size_t Utf8CharacterBytes(absl::string_view text);

}  // namespace torchps
