#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace torchps {

// Returns the number of cores that this process may use, at least 1. This is the size of the CPU
// affinity mask, or the control group's CPU quota (cgroup version 1 or 2), rounded up, if that is
// smaller.
int AvailableCores();

// Calls `has_come` repeatedly for at most `time`, yielding the core between calls. Returns true as
// soon as `has_come` does, and false on timeout. Use for events that arrive sooner than a sleeping
// thread would wake, which takes about 50 us (bench/results/tuning.md). Returns false at once on a
// single-core machine.
bool SpinFor(absl::Duration time, absl::FunctionRef<bool()> has_come);

}  // namespace torchps
