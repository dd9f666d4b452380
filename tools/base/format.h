#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

// Numbers as people read them. Pure functions, the same in every locale.

namespace torchps {

// 1234567 -> "1,234,567".
std::string WithThousands(int64_t value);

// A duration in seconds with about three digits: "41.2 s", "3 min 05 s", "2 h 07 min"; below a
// second "120 ms".
std::string FormatSeconds(double seconds);

// 1536 -> "1.5 KiB".
std::string FormatBytes(double bytes);

// 0.9731 -> "97.31 %". `decimals` behind the point.
std::string FormatPercent(double fraction, int decimals);

// Characters of UTF-8 text, which is what columns are counted in.
int DisplayWidth(absl::string_view text);

// "1 worker", "3 workers".
std::string Count(int64_t number, absl::string_view noun);

// Between single quotes for a POSIX shell where it holds anything but plain word characters.
std::string ShellQuoted(absl::string_view text);

}  // namespace torchps
