#pragma once

#include <functional>
#include <string>

namespace torchps {

// Receives a message for people: one line, without a newline. Not null unless the owner says so.
// Must be thread-safe where the owner does not name the thread.
using LogLine = std::function<void(const std::string& line)>;

// Discards a message; the usual default.
inline void IgnoreLine(const std::string& /*line*/) {}

}  // namespace torchps
