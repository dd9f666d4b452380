#include "server/rpc/round_robin.h"

namespace torchps {

void RoundRobin::Enter(CompletionTag* tag) {
  MutexLock lock(&mutex_);
  if (line_.empty()) polls_ = 0;
  line_.push_back(tag);
}

CompletionTag* RoundRobin::Next() {
  MutexLock lock(&mutex_);
  if (line_.empty() || polls_ < kPolls) return nullptr;
  polls_ = 0;
  CompletionTag* const first = line_.front();
  line_.pop_front();
  return first;
}

void RoundRobin::Polled(bool was_long) {
  MutexLock lock(&mutex_);
  polls_ = was_long ? kPolls : polls_ + 1;
}

bool RoundRobin::waits() const {
  MutexLock lock(&mutex_);
  return !line_.empty();
}

}  // namespace torchps
