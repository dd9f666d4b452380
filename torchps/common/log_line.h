#pragma once

#include <functional>
#include <string>

namespace torchps {

// Receives a message for people: one line, without a newline. Not null, unless the class that
// stores it permits null. Must be thread-safe, unless that class names the thread that calls it.
using LogLine = std::function<void(const std::string& line)>;

// Discards a message; the usual default.
inline void IgnoreLine(const std::string& /*line*/) {}

}  // namespace torchps
