#include "client/upkeep/heartbeat.h"

#include <utility>

namespace torchps {

Heartbeat::Heartbeat(absl::Duration interval, Renew renew, OnLost on_lost, Pause pause)
    : interval_(interval),
      renew_(std::move(renew)),
      on_lost_(std::move(on_lost)),
      pause_(std::move(pause)) {
  thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopping_changed_.SignalAll();
  }
  thread_.join();
}

absl::Status Heartbeat::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void Heartbeat::Run() {
  absl::Duration pause = interval_;
  while (true) {
    {
      MutexLock lock(&mutex_);
      // Spurious wakeups cause an early renewal, which is harmless.
      if (!stopping_) stopping_changed_.WaitFor(&mutex_, pause);
      if (stopping_) return;
    }
    const absl::Status status = renew_(interval_);
    if (!absl::IsAborted(status)) {
      if (pause_ != nullptr) pause = pause_();
      continue;
    }
    {
      MutexLock lock(&mutex_);
      status_ = status;
    }
    on_lost_(status);
    return;
  }
}

}  // namespace torchps
