#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace torchps {

// Polls `condition` until it holds. Returns false after `patience`. Use it for events in another
// thread or process that do not notify the test. The test then runs as fast as the event, and fails
// only if the event does not occur.
inline bool Eventually(absl::FunctionRef<bool()> condition,
                       absl::Duration patience = absl::Seconds(20)) {
  const absl::Time deadline = absl::Now() + patience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    // Sleeps between polls, to not slow down the event.
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace torchps
