#include "server/apply_helper.h"

namespace torchps {

ApplyHelper::ApplyHelper() : thread_([this] { Help(); }) {}

ApplyHelper::~ApplyHelper() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void ApplyHelper::Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work) {
  Task task{pieces, work};
  {
    MutexLock lock(&mutex_);
    if (task_ == nullptr && pieces > 1) {
      task_ = &task;
      changed_.SignalAll();
    }
  }
  task.DoPieces();
  MutexLock lock(&mutex_);
  if (task_ != &task) return;
  // Help that has not begun is not needed any more; what has is at its last piece.
  if (!is_helping_) task_ = nullptr;
  while (task_ == &task) changed_.Wait(&mutex_);
}

void ApplyHelper::Help() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (task_ == nullptr) {
      changed_.Wait(&mutex_);
      continue;
    }
    is_helping_ = true;
    Task* const task = task_;
    mutex_.Unlock();
    task->DoPieces();
    mutex_.Lock();
    is_helping_ = false;
    task_ = nullptr;
    changed_.SignalAll();
  }
}

}  // namespace torchps
