#include "torchps/common/stop_latch.h"

#include <chrono>
#include <utility>

namespace torchps {

StopLatch::Registration::Registration(StopLatch* latch, std::function<void()> callback)
    : latch_(latch) {
  MutexLock lock(&latch_->mutex_);
  id_ = latch_->next_id_++;
  if (latch_->stopped_) callback();
  latch_->callbacks_.emplace(id_, std::move(callback));
}

StopLatch::Registration::~Registration() {
  MutexLock lock(&latch_->mutex_);
  latch_->callbacks_.erase(id_);
}

void StopLatch::Stop(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (stopped_) return;
  stopped_ = true;
  reason_ = reason;
  changed_.SignalAll();
  for (const auto& [id, callback] : callbacks_) callback();
}

bool StopLatch::stopped() const {
  MutexLock lock(&mutex_);
  return stopped_;
}

std::string StopLatch::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

bool StopLatch::WaitFor(absl::Duration timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  MutexLock lock(&mutex_);
  while (!stopped_) {
    const absl::Duration left = absl::FromChrono(deadline - std::chrono::steady_clock::now());
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mutex_, left);
  }
  return stopped_;
}

}  // namespace torchps
