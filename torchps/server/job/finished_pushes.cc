#include "torchps/server/job/finished_pushes.h"

#include <utility>

namespace torchps {

FinishedPushes::Id FinishedPushes::Add(Push push) {
  Id id = 0;
  {
    MutexLock lock(&mutex_);
    id = ++last_id_;
    // Checked under the lock. If an update settles the push after this check, the AnswerSettled()
    // that follows the update finds the push.
    const bool settled = owner_->IsSettled(push);
    waiting_[id] = {std::move(push), settled};
    if (!settled) {
      ++unsettled_;
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
  if (!it->second.settled) --unsettled_;
  forgotten = std::move(it->second);
  waiting_.erase(it);
}

void FinishedPushes::AnswerSettled() {
  std::vector<Id> settled;
  {
    MutexLock lock(&mutex_);
    if (unsettled_ == 0) return;
    for (auto& [id, waiting] : waiting_) {
      if (waiting.settled || !owner_->IsSettled(waiting.push)) continue;
      waiting.settled = true;
      --unsettled_;
      settled.push_back(id);
    }
  }
  for (const Id id : settled) AwaitJournal(id);
}

void FinishedPushes::AwaitJournal(Id id) {
  if (journal_ == nullptr) {
    Answer(id);
  } else {
    // Waits for everything recorded so far. So a repeated push is not answered before the original
    // push is durable.
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
  owner_->Answer(finished.push);
}

}  // namespace torchps
