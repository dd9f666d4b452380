#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace torchps {

// Slows a worker down on purpose, to study stragglers. The forward pass gets a part of the added
// delay. The rest is added after the gradient is computed and before it is sent. The gradient is
// then as stale as the gradient of a worker that is really that slow. Other threads, such as the
// one that renews leases, are not slowed down.
//
// Thread-compatible.
class SimulatedSlowdown {
 public:
  struct Options {
    // Factor on the computing time. At least 1.
    double slow = 1;
    // The minimum duration of a step on a whole batch, including fetching samples; scaled in
    // proportion for other step sizes. `slow` multiplies it. 0: no minimum.
    absl::Duration pace;
    // Waits for `time`, or until the worker is asked to stop. May be null only if any() is false.
    std::function<void(absl::Duration time)> wait;

    // True if any slowdown is configured.
    bool any() const { return slow > 1 || pace > absl::ZeroDuration(); }
  };

  // INVALID_ARGUMENT if a value is out of range; the message names the worker flag.
  static absl::Status Check(const Options& options);

  // `batch` is the number of samples of a whole step: training.batch_size * accumulate.
  SimulatedSlowdown(Options options, int64_t batch);

  bool any() const { return options_.any(); }

  // Delays a step after the forward pass, which took `compute_time`. Calling it is optional.
  void HoldForward(int64_t samples, absl::Duration compute_time);

  // Delays a step after the gradient is computed, by the rest of the step's delay. `compute_time`
  // excludes delays. Returns the total delay of the step, which counts as computing time.
  absl::Duration Hold(int64_t samples, absl::Duration data_time, absl::Duration compute_time);

 private:
  // The minimum duration of a step on `samples` samples.
  absl::Duration Pace(int64_t samples) const;

  const Options options_;
  const int64_t batch_;
  absl::Duration held_;  // the forward delay of the current step
};

}  // namespace torchps
