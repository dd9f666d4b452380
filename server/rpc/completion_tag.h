#pragma once

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

}  // namespace torchps
