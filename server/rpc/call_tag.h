#pragma once

#include <memory>
#include <utility>

#ifdef TORCHPS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace torchps {

// What a completion queue hands back when an operation has ended: the object to wake. Every
// void* tag given to gRPC in server/ is a CompletionTag*.
class CompletionTag {
 public:
  virtual ~CompletionTag() = default;

  // `ok` is gRPC's: false when the operation failed or the queue is shutting down. Called on a
  // completion queue's thread.
  virtual void Proceed(bool ok) = 0;

  // Whether Proceed() takes so long that another thread should poll meanwhile, which costs waking
  // that thread.
  bool is_long() const { return is_long_; }

 protected:
  bool is_long_ = false;
};

// One kind of pending operation of a call: forwards to a member function, and keeps the call alive
// while gRPC holds the tag. A call owns one CallTag per kind of operation and arms it before each.
// Not thread-safe by itself: the same operation is never pending twice.
//
// What a thread did before it armed a tag has happened when gRPC hands the tag back. Debian's gRPC
// is not instrumented, so that ThreadSanitizer has to be told.
template <class Call>
class CallTag final : public CompletionTag {
 public:
  using Method = void (Call::*)(bool ok);

  explicit CallTag(Method method) : method_(method) {}

  // The pointer to give to gRPC.
  void* Arm(std::shared_ptr<Call> call) {
    call_ = std::move(call);
#ifdef TORCHPS_TSAN
    __tsan_release(this);
#endif
    return static_cast<CompletionTag*>(this);
  }

  // What follows this operation takes long.
  void SetLong(bool is_long) { is_long_ = is_long; }

  // For an operation that gRPC will, after all, not report.
  void Disarm() { call_.reset(); }

  void Proceed(bool ok) override {
#ifdef TORCHPS_TSAN
    __tsan_acquire(this);
#endif
    // Moved out first: the method may arm this tag again, or let go of the last reference.
    const std::shared_ptr<Call> call = std::move(call_);
    ((*call).*method_)(ok);
  }

 private:
  const Method method_;
  std::shared_ptr<Call> call_;
};

}  // namespace torchps
