#include "torchps/client/borrowed_memory.h"

namespace torchps {

BorrowedMemory::BorrowedMemory()
    : state_(std::make_shared<State>()),
      // The pointer must be non-null, but is never dereferenced.
      reference_(state_.get(), [state = state_](const void*) {
        MutexLock lock(&state->mutex);
        state->released = true;
        state->changed.SignalAll();
      }) {}

bool BorrowedMemory::TryRelease() {
  reference_.reset();
  MutexLock lock(&state_->mutex);
  return state_->released;
}

void BorrowedMemory::AwaitRelease() {
  reference_.reset();
  MutexLock lock(&state_->mutex);
  while (!state_->released) state_->changed.Wait(&state_->mutex);
}

}  // namespace torchps
