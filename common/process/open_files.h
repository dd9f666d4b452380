#pragma once

#include <cstdint>

namespace torchps {

// How many files and connections this process may have open at a time: the kernel's soft limit.
int64_t OpenFileLimit();

// Raises that to the hard limit, which is what the machine permits. The soft one is 1024 nearly
// everywhere, for programs that use select(); ours do not, and a server has a connection for each
// worker. Processes that are started from here inherit it. Where the kernel refuses, the limit
// stays as it is. To be called in main.
void RaiseOpenFileLimit();

}  // namespace torchps
