#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace torchps {

// Memory that gRPC may go on reading after a call has ended: each of its references holds a copy of
// reference(), and AwaitRelease() waits for the last one to go. gRPC drops them on threads of its
// own choosing while some thread polls the call's queue.
//
// Thread-compatible.
class BorrowedMemory {
 public:
  BorrowedMemory();

  // REQUIRES: neither TryRelease() nor AwaitRelease() was called.
  const std::shared_ptr<const void>& reference() const { return reference_; }

  // Whether nothing refers to the memory any more.
  bool TryRelease();

  // Blocks until nothing refers to the memory any more. To be called again does no harm.
  void AwaitRelease();

 private:
  // Outlives this object until the thread that drops the last reference has let go of it.
  struct State {
    Mutex mutex;
    CondVar changed;
    bool released ABSL_GUARDED_BY(mutex) = false;
  };

  const std::shared_ptr<State> state_;
  std::shared_ptr<const void> reference_;
};

}  // namespace torchps
