#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// How much memory this process may have, and by whose word.
struct MemoryLimit {
  int64_t bytes = 0;
  // To be said of the process's program, with the number behind it: "whose machine has".
  std::string whose;
};

// The least of what the machine has, what the process's cgroups and those above them may have
// (version 2's memory.max, version 1's memory.limit_in_bytes: a container's limit), and its address
// space (RLIMIT_AS, `ulimit -v`). What cannot be read limits nothing. `root` is "/", or in tests
// where proc and sys lie.
MemoryLimit FindMemoryLimit(const std::string& root = "/");

}  // namespace torchps
