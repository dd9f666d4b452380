#include "torchps/server/job/frame_admission.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

// From this size on, pushing a run of blocks takes one thread longer (some 100 us) than waking a
// second thread.
constexpr int64_t kElementsWorthHelp = (1 << 20) / sizeof(float);

}  // namespace

absl::Status SharedFrames::Push(const PushHeader& header, const SharedSegment& segment, bool copies,
                                PushBlock push) {
  if (!segments_->Has(segment, header.shared_buffer)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame refers to buffer ", header.shared_buffer,
                     " of the shared memory, which slot ", header.slot, " does not have"));
  }
  const std::vector<BlockId>& owned = map_->owned_by(server_index_);
  const auto first = std::lower_bound(owned.begin(), owned.end(), header.block);
  if (first == owned.end() || *first != header.block ||
      header.shared_blocks > owned.end() - first) {
    return absl::InvalidArgumentError(absl::StrCat("a frame refers to ", header.shared_blocks,
                                                   " blocks from block ", header.block,
                                                   " on, which this server does not own"));
  }
  if (!header.absent.empty() && header.shared_blocks > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame refers to ", header.shared_blocks,
        " blocks and contains a table of absent elements, which is allowed for one block only"));
  }
  Mutex mutex;
  absl::Status failure;
  const auto push_one = [&](size_t index) {
    {
      MutexLock lock(&mutex);
      if (!failure.ok()) return;
    }
    PushHeader one = header;
    one.block = first[index];
    const absl::Span<const float> values =
        segments_->Read(segment, map_->blocks()[one.block], header.shared_buffer);
    std::vector<grpc::Slice> slices;
    if (copies) {
      slices.emplace_back(values.data(), values.size() * sizeof(float));
    } else {
      slices.emplace_back(values.data(), values.size() * sizeof(float), grpc::Slice::STATIC_SLICE);
    }
    const absl::Status pushed = push(one, FramePayload(std::move(slices)));
    MutexLock lock(&mutex);
    failure.Update(pushed);
  };
  if (header.shared_blocks * map_->blocks()[*first].length < kElementsWorthHelp) {
    for (size_t index = 0; index < header.shared_blocks; ++index) push_one(index);
  } else {
    helper_.Run(header.shared_blocks, push_one);
  }
  return failure;
}

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
