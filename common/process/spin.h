#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace torchps {

// Calls `has_come` again and again, for `time` at most, and yields the core between two calls. For
// what is expected sooner than a sleeping thread would wake, which takes some 50 us
// (bench/results/tuning.md). Returns whether it has come. On a machine with one core it never
// spins.
bool SpinFor(absl::Duration time, absl::FunctionRef<bool()> has_come);

}  // namespace torchps
