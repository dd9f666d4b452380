#pragma once

#include <memory>
#include <utility>

#ifdef TORCHPS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace torchps {

// Tag that a completion queue returns when an operation has ended. Every void* tag that server/
// passes to gRPC is a CompletionTag*.
class CompletionTag {
 public:
  virtual ~CompletionTag() = default;

  // Called on a completion queue's thread when the operation has ended. gRPC passes `ok` = false if
  // the operation failed or the queue is shutting down.
  virtual void Proceed(bool ok) = 0;

  // Returns true if Proceed() runs so long that waking another thread to poll is worth the cost.
  bool is_long() const { return is_long_; }

 protected:
  bool is_long_ = false;
};

// Tag for one kind of pending operation of a call. Forwards to a member function, and keeps the
// call alive while gRPC holds the tag. A call owns one CallTag for each kind of operation and arms
// the tag before each operation. Not thread-safe: the same operation is never pending twice.
//
// Arming a tag happens before gRPC returns that tag. Debian's gRPC is not instrumented, so the
// annotations below pass this order on to ThreadSanitizer.
template <class Call>
class CallTag final : public CompletionTag {
 public:
  using Method = void (Call::*)(bool ok);

  explicit CallTag(Method method) : method_(method) {}

  // Returns the pointer to pass to gRPC.
  void* Arm(std::shared_ptr<Call> call) {
    call_ = std::move(call);
#ifdef TORCHPS_TSAN
    __tsan_release(this);
#endif
    return static_cast<CompletionTag*>(this);
  }

  // Declares that the method runs long (see CompletionTag::is_long).
  void SetLong(bool is_long) { is_long_ = is_long; }

  // Releases the call if gRPC will not report the operation.
  void Disarm() { call_.reset(); }

  void Proceed(bool ok) override {
#ifdef TORCHPS_TSAN
    __tsan_acquire(this);
#endif
    // Moved out first because the method may arm this tag again or drop the last reference.
    const std::shared_ptr<Call> call = std::move(call_);
    ((*call).*method_)(ok);
  }

 private:
  const Method method_;
  std::shared_ptr<Call> call_;
};

}  // namespace torchps
