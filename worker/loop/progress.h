#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/types.h"

namespace torchps {

// Accumulates steps and formats them, once per interval, as a progress line for users and for
// psctl. Not thread-safe. The caller passes the time.
class Progress {
 public:
  Progress(SlotId slot, absl::Duration interval, absl::Duration now);

  // Adds a step of `samples` samples. `loss_sum` is the sum of the losses and `waited` the waiting
  // time within the step. A loss that is not finite is excluded from the mean; the mean is nan if
  // no other loss is left.
  void Add(int64_t samples, double loss_sum, absl::Duration waited);

  // Returns a line if `interval` has passed since the last line and a step was added; otherwise "".
  std::string Line(int epoch, Step step, absl::Duration now);

 private:
  const SlotId slot_;
  const absl::Duration interval_;
  absl::Duration since_;
  int64_t samples_ = 0;
  int64_t loss_samples_ = 0;  // the samples of loss_sum_
  double loss_sum_ = 0;
  absl::Duration waited_;
};

// Measures how long a trainer has been busy with one unit of work: a pass, the fetching of samples,
// an evaluation. Waiting for servers does not count.
//
// Thread-safe. Borrows the clock.
class ProgressTimer {
 public:
  // Stops the timer for the object's lifetime: the trainer is waiting.
  class Rest {
   public:
    explicit Rest(ProgressTimer* pulse) : pulse_(pulse) { pulse_->since_ns_ = kResting; }
    ~Rest() { pulse_->Beat(); }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    ProgressTimer* const pulse_;
  };

  // The timer starts stopped.
  explicit ProgressTimer(const Clock* clock) : clock_(clock) {}

  // Restarts the timer: the trainer finished a unit of work, or begins one.
  void Beat() { since_ns_ = absl::ToInt64Nanoseconds(clock_->Now()); }

  // Returns zero while the trainer waits.
  absl::Duration stalled_for() const {
    const int64_t since = since_ns_;
    return since == kResting ? absl::ZeroDuration() : clock_->Now() - absl::Nanoseconds(since);
  }

 private:
  static constexpr int64_t kResting = -1;

  const Clock* const clock_;
  std::atomic<int64_t> since_ns_{kResting};
};

}  // namespace torchps
