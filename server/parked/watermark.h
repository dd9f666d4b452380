#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace torchps {

// A number that only rises, and what is to happen when it gets somewhere: a wait that may last a
// training step is a stored continuation here and holds no thread.
//
// Not thread-safe: the owner locks, and runs the continuations it is given outside its lock.
class Watermark {
 public:
  using Continuation = std::function<void()>;
  using WaiterId = uint64_t;

  explicit Watermark(int64_t value = 0) : value_(value) {}

  int64_t value() const { return value_; }
  size_t waiting() const { return waiters_.size(); }

  // Stores `continuation` until the value is at least `threshold`.
  // REQUIRES: value() < threshold.
  WaiterId WhenAtLeast(int64_t threshold, Continuation continuation) {
    const WaiterId id = ++last_id_;
    waiters_.emplace(std::make_pair(threshold, id), std::move(continuation));
    return id;
  }

  // Forgets a waiter; false if it was already released.
  bool Cancel(WaiterId id) {
    for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
      if (it->first.second == id) {
        waiters_.erase(it);
        return true;
      }
    }
    return false;
  }

  // Raises the value (a lower one changes nothing) and returns what is now due, in the order of
  // thresholds, then of arrival. Run them in that order.
  std::vector<Continuation> RaiseTo(int64_t value) {
    std::vector<Continuation> due;
    if (value <= value_) return due;
    value_ = value;
    auto end = waiters_.upper_bound({value_, UINT64_MAX});
    for (auto it = waiters_.begin(); it != end; ++it) due.push_back(std::move(it->second));
    waiters_.erase(waiters_.begin(), end);
    return due;
  }

 private:
  int64_t value_;
  WaiterId last_id_ = 0;
  std::map<std::pair<int64_t, WaiterId>, Continuation> waiters_;
};

}  // namespace torchps
