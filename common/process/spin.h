#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace torchps {

// Calls `has_come` repeatedly for at most `time`, yielding the core between calls. Returns true as
// soon as `has_come` does, and false on timeout. Use for events that arrive sooner than a sleeping
// thread would wake, which takes about 50 us (bench/results/tuning.md). Returns false at once on a
// single-core machine.
bool SpinFor(absl::Duration time, absl::FunctionRef<bool()> has_come);

}  // namespace torchps
