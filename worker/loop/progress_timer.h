#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"

namespace torchps {

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
