#pragma once

#include <memory>
#include <utility>

#include "server/rpc/completion_tag.h"
#include "server/rpc/hand_over.h"

namespace torchps {

// One kind of pending operation of a call: forwards to a member function, and keeps the call alive
// while gRPC holds the tag. A call owns one CallTag per kind of operation and arms it before each.
// Not thread-safe by itself: the same operation is never pending twice.
template <class Call>
class CallTag final : public CompletionTag {
 public:
  using Method = void (Call::*)(bool ok);

  explicit CallTag(Method method) : method_(method) {}

  // The pointer to give to gRPC.
  void* Arm(std::shared_ptr<Call> call) {
    call_ = std::move(call);
    BeforeGrpcHasTag(this);
    return static_cast<CompletionTag*>(this);
  }

  // What follows this operation takes long.
  void SetLong(bool is_long) { is_long_ = is_long; }

  // For an operation that gRPC will, after all, not report.
  void Disarm() { call_.reset(); }

  void Proceed(bool ok) override {
    AfterGrpcHadTag(this);
    // Moved out first: the method may arm this tag again, or let go of the last reference.
    const std::shared_ptr<Call> call = std::move(call_);
    ((*call).*method_)(ok);
  }

 private:
  const Method method_;
  std::shared_ptr<Call> call_;
};

}  // namespace torchps
