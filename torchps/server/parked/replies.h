#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace torchps {

// Sends the answer to a call, now or later. Called once.
template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;

// Identifies one parked call. 0 means that the call was not parked.
using ParkedCallId = uint64_t;

// Stores a call that waits for an answer. At namespace level because clang 14 crashes on a member
// template here.
template <typename T>
struct ParkedReply {
  ParkedCallId id = 0;
  Reply<T> reply;
};

// Collects answers that are decided but not sent yet. A class without a lock (ParkedCalls of the
// coordinator) adds them while the caller holds a lock. The caller removes the answers, releases
// the lock and runs them. So an answer may call back into that class. Not thread-safe.
class PendingReplies {
 public:
  template <typename T>
  void Add(Reply<T> reply, absl::StatusOr<T> answer) {
    ready_.push_back([reply = std::move(reply), answer = std::move(answer)] { reply(answer); });
  }

  // Returns the answers in the order of the decisions.
  std::vector<std::function<void()>> Take() { return std::exchange(ready_, {}); }

 private:
  std::vector<std::function<void()>> ready_;
};

// Holds a number that only rises, and continuations that wait until it reaches a threshold. Because
// a wait may last a training step, each wait is a stored continuation and does not hold a thread.
//
// Not thread-safe. The owner locks, and runs the returned continuations outside the lock.
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

  // Removes a waiter. Returns false if the waiter was already released.
  bool Cancel(WaiterId id) {
    for (auto it = waiters_.begin(); it != waiters_.end(); ++it) {
      if (it->first.second == id) {
        waiters_.erase(it);
        return true;
      }
    }
    return false;
  }

  // Raises the value and returns the continuations that are now due, ordered by threshold, then by
  // arrival. The caller runs them in that order. Returns an empty list if `value` is not higher.
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
