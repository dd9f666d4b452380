#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace torchps {

// Returns `text` made safe to print on a terminal; used for text that another process chose.
// Replaces each control character with '?', because control characters could move the cursor, forge
// lines or rename the window. Also replaces bytes that are not valid UTF-8, because some terminals
// interpret them as control characters.
std::string Printable(absl::string_view text);

// Returns the bytes of the UTF-8 character at the start of `text`, or 0 if they are not UTF-8.
// REQUIRES: `text` is not empty.
size_t Utf8CharacterBytes(absl::string_view text);

// Returns the element of `known` that `name` probably misspells, or "" if there is no close match.
// A close match differs only in case, or in at most a third of the letters. Two swapped letters
// count as a single error (Damerau 1964). If `name` is at most four letters long, the first letter
// must match: "top" is not a misspelling of "stop". Thread-safe.
std::string ClosestName(absl::string_view name, const std::vector<std::string>& known);

}  // namespace torchps
