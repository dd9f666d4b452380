#include "torchps/server/job/apply_helper.h"

#include "absl/time/time.h"
#include "torchps/common/process/process_limits.h"

namespace torchps {
namespace {

// Time that a thread spins before it sleeps. Longer than applying a block of 1 MiB (some 100 us),
// and longer than the gap between two frames.
constexpr absl::Duration kPatience = absl::Microseconds(300);

}  // namespace

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
  {
    MutexLock lock(&mutex_);
    // Withdraws the task if the helper is still idle. Otherwise the helper still works on its last
    // piece.
    if (task_ == &task && !is_helping_) task_ = nullptr;
  }
  const auto is_done = [&] { return task_ != &task; };
  if (is_done() || SpinFor(kPatience, is_done)) return;
  MutexLock lock(&mutex_);
  while (!is_done()) changed_.Wait(&mutex_);
}

void ApplyHelper::Help() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (task_ == nullptr) {
      mutex_.Unlock();
      SpinFor(kPatience, [this] { return task_ != nullptr; });
      mutex_.Lock();
      if (task_ == nullptr && !stopping_) changed_.Wait(&mutex_);
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
