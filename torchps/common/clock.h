#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace torchps {

// A steady clock that callers inject, so that leases, schedules and the simulator can run without
// real time. Thread-safe. Now() never decreases and is unrelated to the time of day.
class Clock {
 public:
  virtual ~Clock() = default;

  // Returns the time since a fixed, arbitrary moment.
  virtual absl::Duration Now() const = 0;
};

// Reads CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  absl::Duration Now() const override;
};

// Exponential backoff between retries: the delay doubles from `initial` to `max`. A seeded random
// draw shortens each delay by up to 25 %, so that many callers do not retry at the same time. Not
// thread-safe.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(100);
    absl::Duration max = absl::Seconds(2);
  };

  Backoff(Options options, uint64_t seed);

  // Returns the next delay and doubles the one after it, up to the maximum.
  absl::Duration Next();

  // Called after a success: the next delay is `initial` again.
  void Reset();

 private:
  const Options options_;
  uint64_t random_state_;
  absl::Duration delay_;
};

}  // namespace torchps
