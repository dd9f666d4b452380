#pragma once

#include <cstdint>

namespace torchps {

// Returns the soft limit on open files and connections of this process.
int64_t OpenFileLimit();

// Raises the soft limit on open files to the hard limit. The usual soft limit of 1024 protects
// programs that call select(), which torchps does not, and a server needs a connection for each
// worker. Child processes inherit the limit. Keeps the old limit if the kernel refuses. Call from
// main.
void RaiseOpenFileLimit();

}  // namespace torchps
