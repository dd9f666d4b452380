#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/ids.h"
#include "server/parked/watermark.h"

namespace torchps {

// Decides which slots may pull, by stale synchronous parallel (Ho et al. 2013). A slot at clock c
// may pull when c - min_clock <= bound. min_clock is the lowest clock of the live slots (ASYNC) or
// the number of completed rounds (SYNC, with bound 0).
//
// A pull that must wait is a stored continuation, so waiting does not hold a thread. Invariant: the
// gate never releases a pull while c - min_clock > bound.
// Not thread-safe: the owner locks, and runs released continuations outside its lock.
class PullGate {
 public:
  static constexpr int64_t kNoBound = -1;

  // `bound` in steps, at least 0, or kNoBound.
  explicit PullGate(int64_t bound) : bound_(bound) {}

  int64_t min_clock() const { return min_clock_.value(); }
  size_t parked() const { return min_clock_.waiting(); }

  bool MayPull(Step clock) const { return bound_ == kNoBound || clock - min_clock() <= bound_; }

  // REQUIRES: !MayPull(clock).
  Watermark::WaiterId Park(Step clock, Watermark::Continuation continuation) {
    return min_clock_.WhenAtLeast(clock - bound_, std::move(continuation));
  }

  bool Cancel(Watermark::WaiterId id) { return min_clock_.Cancel(id); }

  // Raises the min clock and returns the pulls that may run now.
  std::vector<Watermark::Continuation> RaiseMinClock(int64_t min_clock) {
    return min_clock_.RaiseTo(min_clock);
  }

 private:
  const int64_t bound_;
  Watermark min_clock_;
};

}  // namespace torchps
