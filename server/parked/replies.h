#pragma once

#include <cstdint>
#include <functional>
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

// Collects answers that are decided but not sent yet. The policy class decides under the caller's
// lock. Then the caller runs the answers after releasing the lock. So only policy code runs under
// the lock, and an answer may call back into the policy. Not thread-safe.
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

}  // namespace torchps
