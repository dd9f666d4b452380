#pragma once

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

}  // namespace torchps
