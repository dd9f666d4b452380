#include "server/rpc/turn_line.h"

namespace torchps {

void TurnLine::Enter(CompletionTag* tag) {
  MutexLock lock(&mutex_);
  if (line_.empty()) questions_ = 0;
  line_.push_back(tag);
}

void TurnLine::GoOn(CompletionTag* tag) {
  MutexLock lock(&mutex_);
  if (line_.empty()) questions_ = 0;
  line_.push_front(tag);
}

CompletionTag* TurnLine::Next() {
  MutexLock lock(&mutex_);
  if (line_.empty() || questions_ < kQuestions) return nullptr;
  questions_ = 0;
  CompletionTag* const first = line_.front();
  line_.pop_front();
  return first;
}

void TurnLine::Asked(bool was_long) {
  MutexLock lock(&mutex_);
  questions_ = was_long ? kQuestions : questions_ + 1;
}

bool TurnLine::waits() const {
  MutexLock lock(&mutex_);
  return !line_.empty();
}

}  // namespace torchps
