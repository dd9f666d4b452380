#include "server/housekeeping.h"

#include <utility>

namespace torchps {

Housekeeping::Housekeeping(absl::Duration interval, std::function<void()> chores)
    : interval_(interval), chores_(std::move(chores)), thread_([this] { Run(); }) {}

Housekeeping::~Housekeeping() { Stop(); }

void Housekeeping::Stop() {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
    stop_.SignalAll();
  }
  thread_.join();
}

void Housekeeping::Run() {
  MutexLock lock(&mutex_);
  while (!stopping_) {
    stop_.WaitFor(&mutex_, interval_);
    if (stopping_) return;
    mutex_.Unlock();
    chores_();
    mutex_.Lock();
  }
}

}  // namespace torchps
