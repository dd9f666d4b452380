#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "common/clock.h"

namespace torchps {

// For how long a trainer has been at one piece of its own work: a pass, the samples of one, an
// evaluation. What servers make it wait for is not its own work.
//
// Thread-safe. Borrows the clock.
class ProgressTimer {
 public:
  // The trainer waits for others while this lives.
  class Rest {
   public:
    explicit Rest(ProgressTimer* pulse) : pulse_(pulse) { pulse_->since_ns_ = kResting; }
    ~Rest() { pulse_->Beat(); }
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;

   private:
    ProgressTimer* const pulse_;
  };

  // Begins with the trainer at rest.
  explicit ProgressTimer(const Clock* clock) : clock_(clock) {}

  // The trainer has ended a piece of its own work, or begins with one.
  void Beat() { since_ns_ = absl::ToInt64Nanoseconds(clock_->Now()); }

  // Zero while it waits for others.
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
