#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/ids.h"
#include "server/waiting/rising_number.h"

namespace torchps {

// Which slots may read: stale synchronous parallel (Ho et al. 2013). A slot at clock c may pull
// when c - floor <= bound, where the floor is the min clock over live slots (ASYNC) or the number
// of completed rounds (SYNC, with bound 0).
//
// A pull that may not go yet is a stored continuation, so waiting holds no thread. The invariant:
// no pull is released while c - floor > bound. Not thread-safe: the owner locks, and runs released
// continuations outside its lock.
class PullGate {
 public:
  static constexpr int64_t kNoBound = -1;

  // `bound` in steps, at least 0, or kNoBound.
  explicit PullGate(int64_t bound) : bound_(bound) {}

  int64_t floor() const { return floor_.value(); }
  size_t parked() const { return floor_.waiting(); }

  bool MayPull(Step clock) const { return bound_ == kNoBound || clock - floor() <= bound_; }

  // REQUIRES: !MayPull(clock).
  RisingNumber::WaiterId Park(Step clock, RisingNumber::Continuation continuation) {
    return floor_.WhenAtLeast(clock - bound_, std::move(continuation));
  }

  bool Cancel(RisingNumber::WaiterId id) { return floor_.Cancel(id); }

  // The floor has risen: returns the pulls that may go now.
  std::vector<RisingNumber::Continuation> RaiseFloor(int64_t floor) {
    return floor_.RaiseTo(floor);
  }

 private:
  const int64_t bound_;
  RisingNumber floor_;
};

}  // namespace torchps
