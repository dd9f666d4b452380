#include "torchps/server/periodic_tasks.h"

#include <utility>

namespace torchps {

PeriodicTasks::PeriodicTasks(absl::Duration interval, std::function<void()> chores)
    : interval_(interval),
      chores_(std::move(chores)),
      next_(clock_.Now() + interval),
      thread_([this] { Run(); }) {}

PeriodicTasks::~PeriodicTasks() { Stop(); }

void PeriodicTasks::Stop() {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void PeriodicTasks::Hurry(absl::Duration delay) {
  MutexLock lock(&mutex_);
  const absl::Duration due = clock_.Now() + delay;
  if (due >= next_) return;
  next_ = due;
  changed_.SignalAll();
}

void PeriodicTasks::Run() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    const absl::Duration left = next_ - clock_.Now();
    if (left > absl::ZeroDuration()) {
      changed_.WaitFor(&mutex_, left);
      continue;
    }
    next_ = clock_.Now() + interval_;
    mutex_.Unlock();
    chores_();
    mutex_.Lock();
  }
}

}  // namespace torchps
