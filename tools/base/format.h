#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

// Number formatting for people. Pure functions, independent of the locale.

namespace torchps {

// 1234567 -> "1,234,567".
std::string WithThousands(int64_t value);

// Formats a duration with about three digits: "41.2 s", "3 min 05 s", "2 h 07 min"; below one
// second, "120 ms".
std::string FormatSeconds(double seconds);

// 1536 -> "1.5 KiB".
std::string FormatBytes(double bytes);

// Formats 0.9731 as "97.31 %", with `decimals` digits after the point.
std::string FormatPercent(double fraction, int decimals);

// Returns the number of UTF-8 characters, used to align columns.
int DisplayWidth(absl::string_view text);

// "1 worker", "3 workers".
std::string Count(int64_t number, absl::string_view noun);

// Quotes `text` for a POSIX shell if it contains any special characters.
std::string ShellQuoted(absl::string_view text);

}  // namespace torchps
