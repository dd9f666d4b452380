#pragma once

namespace torchps {

// Returns the number of cores that this process may use, at least 1. This is the size of the CPU
// affinity mask, or the control group's CPU quota (cgroup version 1 or 2), rounded up, if that is
// smaller.
int AvailableCores();

}  // namespace torchps
