#include "server/job/frame_admission.h"

#include <utility>

namespace torchps {

bool FrameAdmission::Await(BlockJournal* journal, int64_t bytes, Continuation go) {
  const uint64_t wait = BeginWait();
  if (wait == 0) return false;
  const BlockJournal::RoomId place =
      journal == nullptr ? 0 : journal->WhenRoom([this, bytes, go] { AwaitBytes(bytes, go); });
  if (place == 0) {
    AwaitBytes(bytes, go);
  } else {
    StandInLine(wait, [journal, place] { journal->CancelRoom(place); });
  }
  return true;
}

bool FrameAdmission::Cancel() {
  Continuation leave;
  bool waited = false;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    waited = std::exchange(waits_, false);
    leave.swap(leave_);
  }
  if (leave != nullptr) leave();
  return waited;
}

void FrameAdmission::AwaitBytes(int64_t bytes, const Continuation& go) {
  const uint64_t wait = BeginWait();
  if (wait == 0) return;
  const ByteBudget::Waiting place = budget_->Take(bytes, [this, bytes, go] { Enter(bytes, go); });
  if (place == 0) {
    Enter(bytes, go);
  } else {
    StandInLine(wait, [this, place] { budget_->Leave(place); });
  }
}

void FrameAdmission::Enter(int64_t bytes, const Continuation& go) {
  Continuation left;
  bool waited = false;
  {
    MutexLock lock(&mutex_);
    waited = std::exchange(waits_, false);
    left.swap(leave_);
  }
  if (waited) {
    go();
  } else {
    budget_->GiveBack(bytes);
  }
}

uint64_t FrameAdmission::BeginWait() {
  MutexLock lock(&mutex_);
  if (cancelled_) return 0;
  waits_ = true;
  leave_ = nullptr;
  return ++wait_;
}

void FrameAdmission::StandInLine(uint64_t number, Continuation leave) {
  {
    MutexLock lock(&mutex_);
    if (waits_ && wait_ == number) {
      leave_ = std::move(leave);
      return;
    }
    if (!cancelled_ || wait_ != number) return;
  }
  // The call was cancelled before `leave` was known. `leave` is harmless if the queue served the
  // call.
  leave();
}

bool TryEnter(BlockJournal* journal, ByteBudget* budget, int64_t bytes) {
  const BlockJournal::RoomId place = journal == nullptr ? 0 : journal->WhenRoom([] {});
  if (place == 0) return budget->TryTake(bytes);
  journal->CancelRoom(place);
  return false;
}

}  // namespace torchps
