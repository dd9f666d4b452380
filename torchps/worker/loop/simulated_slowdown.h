#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace torchps {

// Slows a worker down on purpose, to study stragglers. Adds a part of the delay after the forward
// pass, and the rest between computing and sending the gradient. So the gradient is as stale as on
// a slow machine. Other threads, such as the one that renews leases, are not slowed down.
//
// Thread-compatible.
class SimulatedSlowdown {
 public:
  struct Options {
    // Factor on the computing time. At least 1.
    double slow = 1;
    // The minimum duration of a full step (`batch` samples, see the constructor), including the
    // time to fetch them. For fewer samples, the minimum is proportionally shorter. `slow`
    // multiplies the minimum. 0: no minimum.
    absl::Duration pace;
    // Waits for `time`, or until the worker is asked to stop. May be null only if any() is false.
    std::function<void(absl::Duration time)> wait;

    // True if any slowdown is configured.
    bool any() const { return slow > 1 || pace > absl::ZeroDuration(); }
  };

  // INVALID_ARGUMENT if a value is out of range; the message names the worker flag.
  static absl::Status Check(const Options& options);

  // `batch` is the number of samples of a full step: training.batch_size * accumulate.
  SimulatedSlowdown(Options options, int64_t batch);

  bool any() const { return options_.any(); }

  // Delays a step after the forward pass, which took `compute_time`. Without this call, Hold() adds
  // the whole delay of the step.
  void HoldForward(int64_t samples, absl::Duration compute_time);

  // Delays a step after the gradient is computed, by the rest of the step's delay. `compute_time`
  // excludes delays. Returns the total delay of the step, which the caller adds to the computing
  // time.
  absl::Duration Hold(int64_t samples, absl::Duration data_time, absl::Duration compute_time);

 private:
  // The minimum duration of a step on `samples` samples.
  absl::Duration Pace(int64_t samples) const;

  const Options options_;
  const int64_t batch_;
  absl::Duration held_;  // the forward delay of the current step
};

}  // namespace torchps
