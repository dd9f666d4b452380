#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace torchps {

// What a thread does between two questions.
enum class Meanwhile {
  // Lets whoever else wants the core have it, and asks on: hears of it at once.
  kYield,
  // Sleeps for kNap by a timer of its own: for a stream that somebody else is busy sending, who
  // then need not wake this thread for every part of it, and has the core meanwhile.
  kNap,
};

// Some 64 KiB to 128 KiB of a loopback.
inline constexpr absl::Duration kNap = absl::Microseconds(20);

// Asks `has_come` again and again, for `time` at most, before its caller puts its thread to sleep:
// for what is expected sooner than a sleeping thread would wake, which takes some 50 us, and about
// as much processor time as the asking (bench/results/tuning.md). Returns whether it has come. On a
// machine with one core it never asks.
bool AskFor(absl::Duration time, absl::FunctionRef<bool()> has_come,
            Meanwhile meanwhile = Meanwhile::kYield);

}  // namespace torchps
