#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace torchps {

// How long to wait before the next try: doubles from `initial` to `max`, each time with up to 25 %
// taken off by a seeded draw, so that many callers do not return in step. Not thread-safe.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(100);
    absl::Duration max = absl::Seconds(2);
  };

  Backoff(Options options, uint64_t seed);

  // The next delay; each call is longer, up to the maximum.
  absl::Duration Next();

  // After a success: the next delay is the initial one again.
  void Reset();

 private:
  const Options options_;
  uint64_t random_state_;
  absl::Duration delay_;
};

}  // namespace torchps
