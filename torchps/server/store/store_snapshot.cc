#include "torchps/server/store/store_snapshot.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torchps/common/missed_steps.h"

namespace torchps {

absl::StatusOr<absl::Duration> StoreSnapshot::Capture(size_t index, const Clock& clock,
                                                      BlockCopy* copy) const {
  Block* const block = &(*blocks_)[index];
  const size_t length = block->range.length;
  MutexLock lock(&block->mutex);
  const absl::Duration begun = clock.Now();
  if (!block->initialized) {
    return absl::AbortedError(absl::StrCat("block ", block->range.id, " has no values yet"));
  }
  // Does not allocate unless the caller's copy is too small.
  if (const size_t elements = length * (block->slots.size() + 1); copy->memory_.size() < elements) {
    copy->memory_.resize(elements);
  }
  BlockImage& image = copy->image_;
  image.range = block->range;
  image.version = block->version;
  image.slots.clear();
  float* next = copy->memory_.data();
  const auto take = [&](const float* from) {
    std::copy_n(from, length, next);
    const absl::Span<const float> taken(next, length);
    next += length;
    return taken;
  };
  image.values = take(block->values.data());
  for (const std::vector<float>& slot : block->slots) image.slots.push_back(take(slot.data()));
  const std::vector<LedgerEntry> ledger = policy_->SettledLedger(*block);
  copy->ledger_.assign(ledger.begin(), ledger.end());
  image.ledger = copy->ledger_;
  copy->missed_.assign(block->missed.runs().begin(), block->missed.runs().end());
  image.missed = copy->missed_;
  return clock.Now() - begun;
}

std::unique_ptr<BlockCopy> StoreSnapshot::MakeCopy() const {
  return std::make_unique<BlockCopy>(
      blocks_->largest_block_bytes() / static_cast<int64_t>(sizeof(float)), blocks_->max_slots(),
      /*ledger=*/256);
}

absl::Status StoreSnapshot::Restore(const BlockImage& image) {
  const BlockId id = image.range.id;
  Block* const block = blocks_->Find(id);
  if (block == nullptr) {
    return absl::DataLossError(
        absl::StrCat("block ", id, " was restored but is not on this server"));
  }
  bool first = false;
  {
    MutexLock lock(&block->mutex);
    const bool same_lengths =
        image.values.size() == static_cast<size_t>(block->range.length) &&
        std::all_of(image.slots.begin(), image.slots.end(),
                    [&](const auto& slot) { return slot.size() == image.values.size(); });
    if (image.range.offset != block->range.offset ||
        image.range.averaged != block->range.averaged || !same_lengths ||
        image.slots.size() != block->slots.size() || image.version < 0 ||
        image.ledger.size() > static_cast<size_t>(kMaxSlots)) {
      return absl::DataLossError(absl::StrCat(
          "block ", id, " was saved as ", image.values.size(), " elements with ",
          image.slots.size(), " optimizer slots at element ", image.range.offset, "; here it has ",
          block->range.length, " with ", block->slots.size(), " at ", block->range.offset));
    }
    const absl::Status missed =
        MissedSteps::Check(image.missed, block->range.length, image.version);
    if (!missed.ok()) {
      return absl::DataLossError(absl::StrCat("block ", id, ": ", missed.message()));
    }
    const BlockChange change(block);
    std::copy(image.values.begin(), image.values.end(), block->values.begin());
    for (size_t slot = 0; slot < image.slots.size(); ++slot) {
      std::copy(image.slots[slot].begin(), image.slots[slot].end(), block->slots[slot].begin());
    }
    block->version = image.version;
    block->ledger.assign(image.ledger.begin(), image.ledger.end());
    block->missed = MissedSteps(image.missed);
    block->LookWhetherFinite();
    first = !block->initialized;
    block->initialized = true;
  }
  if (first) blocks_->CountInitialized();
  return absl::OkStatus();
}

absl::Status StoreSnapshot::Replay(BlockId id, absl::FunctionRef<absl::Status(Block*)> change) {
  Block* const block = blocks_->Find(id);
  if (block == nullptr) {
    return absl::DataLossError(
        absl::StrCat("block ", id, " was changed but is not on this server"));
  }
  bool first = false;
  {
    MutexLock lock(&block->mutex);
    const bool had_values = block->initialized;
    if (const absl::Status changed = change(block); !changed.ok()) return changed;
    first = block->initialized && !had_values;
  }
  if (first) blocks_->CountInitialized();
  return absl::OkStatus();
}

void StoreSnapshot::FinishRestore() {
  Version highest = 0;
  for (const std::unique_ptr<Block>& block : *blocks_) {
    MutexLock lock(&block->mutex);
    highest = std::max(highest, block->version);
  }
  for (const std::unique_ptr<Block>& block : *blocks_) {
    MutexLock lock(&block->mutex);
    policy_->TakeRestored(block.get(), highest);
  }
}

std::map<SlotId, StoreSnapshot::SlotHistory> StoreSnapshot::Histories() const {
  std::map<SlotId, SlotHistory> histories;
  for (const std::unique_ptr<Block>& block : *blocks_) {
    MutexLock lock(&block->mutex);
    for (size_t slot = 0; slot < block->ledger.size(); ++slot) {
      const LedgerEntry& entry = block->ledger[slot];
      if (entry.last_step == 0) continue;
      SlotHistory& history = histories[static_cast<SlotId>(slot)];
      history.incarnation = std::max(history.incarnation, entry.incarnation);
    }
  }
  for (auto& [slot, history] : histories) {
    history.clock = std::numeric_limits<Step>::max();
    for (const std::unique_ptr<Block>& block : *blocks_) {
      MutexLock lock(&block->mutex);
      history.clock = std::min(history.clock, block->MakeEntry(slot).last_step);
    }
  }
  return histories;
}

}  // namespace torchps
