#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// The memory available to this process and the source of that limit.
struct MemoryLimit {
  int64_t bytes = 0;
  // Clause for messages, to be followed by the number of bytes: "whose machine has".
  std::string whose;
};

// Returns the smallest of these limits: the machine's memory; memory.max (cgroup version 2) or
// memory.limit_in_bytes (version 1) of this process's control groups and their ancestors, which is
// a container's limit; and the address space limit (RLIMIT_AS, `ulimit -v`). Skips limits that it
// cannot read. `root` is "/"; tests pass a directory that contains their proc and sys trees.
MemoryLimit FindMemoryLimit(const std::string& root = "/");

}  // namespace torchps
