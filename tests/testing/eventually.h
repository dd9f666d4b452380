#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace torchps {

// Asks `condition` until it holds; false if it does not within `patience`. For what another thread
// or process will do soon and tells nobody about: a test that uses it is as fast as the event, and
// fails only when the event does not come.
inline bool Eventually(absl::FunctionRef<bool()> condition,
                       absl::Duration patience = absl::Seconds(20)) {
  const absl::Time deadline = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    // Between two questions, so that asking does not slow the answer down.
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace torchps
