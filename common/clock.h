#pragma once

#include "absl/time/time.h"

namespace torchps {

// A steady clock that is handed in, so that leases, schedules and the simulator need no real time.
// Thread-safe. Now() never goes back and says nothing about the time of day.
class Clock {
 public:
  virtual ~Clock() = default;

  // Time since some fixed, arbitrary moment.
  virtual absl::Duration Now() const = 0;
};

// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  absl::Duration Now() const override;
};

}  // namespace torchps
