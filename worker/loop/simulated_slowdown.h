#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/clock.h"

namespace torchps {

// Makes a worker slower than its machine, on purpose: to see what a straggler does to a job. A
// step's forward pass takes its part of the added time. The rest comes when the gradient is
// computed and nothing of it has left, so that it is as old as that of a worker that takes so long
// by itself. Other threads go on, the one that renews leases among them.
//
// Thread-compatible. Borrows the clock.
class SimulatedSlowdown {
 public:
  struct Options {
    // Computing takes so many times as long. At least 1.
    double slow = 1;
    // A step on a whole batch takes at least so long, the fetching of samples included; one on more
    // or fewer samples takes its part of that. `slow` counts from there. 0: no matter how long.
    absl::Duration pace;
    // Once in every `pause_every` since its first step the worker stands still for `pause`, within
    // the step that it is at. Both 0: never.
    absl::Duration pause;
    absl::Duration pause_every;
    // Waits for so long, or until the worker is to stop. Null only where any() is false.
    std::function<void(absl::Duration time)> wait;

    // Whether there is anything to add.
    bool any() const {
      return slow > 1 || pace > absl::ZeroDuration() || pause > absl::ZeroDuration();
    }
  };

  // Which of them is out of its range, as the worker's flag has it; otherwise OK.
  static absl::Status Check(const Options& options);

  // "FOR:EVERY", both in seconds, into `pause` and `pause_every`; "" leaves them 0.
  // INVALID_ARGUMENT as Check(), or says what was expected.
  static absl::Status ParsePause(absl::string_view text, Options* options);

  // `batch`: the samples of a whole step, training.batch_size * accumulate.
  SimulatedSlowdown(Options options, int64_t batch, const Clock* clock);

  bool any() const { return options_.any(); }

  // The forward pass of a step is computed, in `compute_time`: waits for what it takes longer. May
  // be left out.
  void HoldForward(int64_t samples, absl::Duration compute_time);

  // The gradient of a step is computed, in `compute_time` without what was waited: waits for the
  // rest. Returns all that the step was held back, which counts as computing.
  absl::Duration Hold(int64_t samples, absl::Duration data_time, absl::Duration compute_time);

 private:
  // What the pace says of a step on so many samples.
  absl::Duration Pace(int64_t samples) const;

  const Options options_;
  const int64_t batch_;
  const Clock* const clock_;
  absl::optional<absl::Duration> next_pause_;
  absl::Duration held_;  // of the present step
};

}  // namespace torchps
