#include "server/job/finished_pushes.h"

#include <utility>

namespace torchps {

FinishedPushes::Id FinishedPushes::Add(Push push, bool awaits_round) {
  Id id = 0;
  {
    MutexLock lock(&mutex_);
    id = ++last_id_;
    const Step step = push.step;
    Waiting& waiting = waiting_[id];
    waiting.push = std::move(push);
    if (awaits_round && rounds_.value() < step) {
      waiting.round = rounds_.WhenAtLeast(step, [this, id] { AwaitJournal(id); });
      return id;
    }
  }
  AwaitJournal(id);
  return id;
}

void FinishedPushes::Cancel(Id id) {
  Waiting forgotten;
  MutexLock lock(&mutex_);
  const auto it = waiting_.find(id);
  if (it == waiting_.end()) return;
  if (it->second.round != 0) rounds_.Cancel(it->second.round);
  forgotten = std::move(it->second);
  waiting_.erase(it);
}

std::vector<RisingNumber::Continuation> FinishedPushes::RaiseRounds(int64_t round) {
  MutexLock lock(&mutex_);
  return rounds_.RaiseTo(round);
}

void FinishedPushes::AwaitJournal(Id id) {
  if (journal_ == nullptr) {
    Answer(id);
  } else {
    // All that was recorded so far, so that a repeat is answered no sooner than the push itself.
    journal_->WhenDurable([this, id] { Answer(id); });
  }
}

void FinishedPushes::Answer(Id id) {
  Waiting finished;
  {
    MutexLock lock(&mutex_);
    const auto it = waiting_.find(id);
    if (it == waiting_.end()) return;
    finished = std::move(it->second);
    waiting_.erase(it);
  }
  answer_(finished.push);
}

}  // namespace torchps
