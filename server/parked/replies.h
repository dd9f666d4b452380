#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace torchps {

// What is to happen with the answer to a call, now or later. Called once.
template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;

// Names one parked call. 0: the call was not parked.
using ParkedCallId = uint64_t;

// A call that waits for its answer. (At namespace level because clang 14 crashes on it as a member
// template.)
template <typename T>
struct ParkedReply {
  ParkedCallId id = 0;
  Reply<T> reply;
};

// Answers that are decided but not yet given. A policy class decides under its caller's lock; the
// caller takes the answers and gives them outside of it, so that nothing but policy runs under the
// lock and an answer may call back in. Not thread-safe.
class PendingReplies {
 public:
  template <typename T>
  void Add(Reply<T> reply, absl::StatusOr<T> answer) {
    ready_.push_back([reply = std::move(reply), answer = std::move(answer)] { reply(answer); });
  }

  // In the order in which they were decided.
  std::vector<std::function<void()>> Take() { return std::exchange(ready_, {}); }

 private:
  std::vector<std::function<void()>> ready_;
};

}  // namespace torchps
