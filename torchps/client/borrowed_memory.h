#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Tracks memory that gRPC may continue to read after a call ended. Each gRPC reference to the
// memory holds a copy of reference(). AwaitRelease() waits until the last copy is destroyed. gRPC
// destroys the copies on arbitrary threads, and only while a thread polls the call's queue.
//
// Thread-compatible.
class BorrowedMemory {
 public:
  BorrowedMemory();

  // REQUIRES: neither TryRelease() nor AwaitRelease() was called.
  const std::shared_ptr<const void>& reference() const { return reference_; }

  // True if no references to the memory remain.
  bool TryRelease();

  // Blocks until no references to the memory remain. May be called more than once.
  void AwaitRelease();

 private:
  // Kept alive by the thread that drops the last reference, even if this object is already
  // destroyed.
  struct State {
    Mutex mutex;
    CondVar changed;
    bool released ABSL_GUARDED_BY(mutex) = false;
  };

  const std::shared_ptr<State> state_;
  std::shared_ptr<const void> reference_;
};

}  // namespace torchps
