#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace torchps {

// Asks `has_come` again and again, for `time` at most, before its caller puts its thread to sleep:
// for what is expected sooner than a sleeping thread would wake, which takes some 50 us, and about
// as much processor time as the asking (docs/threads.md). Whoever else wants the core has it
// between two questions. Returns whether it has come. On a machine with one core it never asks.
bool AskFor(absl::Duration time, absl::FunctionRef<bool()> has_come);

}  // namespace torchps
