#include "torchps/server/store/sync_push.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {

SyncPush::SyncPush(size_t blocks, size_t owned, int backup_workers, const BlockUpdater* updater,
                   double grace_part, const Clock* clock)
    : backup_workers_(backup_workers),
      owned_(owned),
      updater_(updater),
      grace_part_(grace_part),
      clock_(clock),
      rounds_(blocks) {
  TPS_CHECK(!has_grace() || clock != nullptr, "a grace needs a clock");
  for (Round& round : rounds_) BeginNext(&round);
}

absl::StatusOr<PushDecision> SyncPush::Push(Block* block, const PushHeader& header,
                                            const FramePayload& payload) {
  LedgerEntry& entry = block->Ledger(header.slot);
  const absl::StatusOr<bool> repeat = PushGate::IsRepeat(entry, header.incarnation, header.step);
  if (!repeat.ok()) return repeat.status();
  PushDecision decision;
  if (*repeat) {
    decision.verdict = entry.last_verdict;
    decision.duplicate = true;
    return decision;
  }
  // Uses the rounds that all blocks have finished, not this block's, to keep the blocks together.
  const Step newest = completed_rounds() + 1;
  if (header.step > newest) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", header.slot, " pushed step ",
                                                   header.step, " while this server is collecting ",
                                                   "step ", newest));
  }
  if (header.step <= block->version) {
    decision.verdict = LATE;
    PushGate::Record(decision, header.incarnation, header.step, &entry);
    BlockRecord record;
    record.slots = absl::MakeConstSpan(&header.slot, 1);
    Report(*block, record);
    return decision;
  }

  if (header.step > block->version + 1) {
    return absl::UnavailableError(absl::StrCat("block ", header.block, " has not reached step ",
                                               header.step, " yet; push again"));
  }

  Round& round = rounds_[block->range.id];
  if (round.sum.Has(header.slot)) {
    // Each slot contributes once per round. Until the round is applied, the slot's ledger entry
    // belongs to its first push. So the second push must be repeated, and gets the verdict LATE
    // after the round.
    return absl::UnavailableError(
        absl::StrCat("slot ", header.slot, "'s incarnation ", entry.incarnation,
                     " contributed to step ", header.step, " of block ", header.block,
                     " before it was taken over; push again after that step"));
  }
  round.sum.Add(*block, header, payload, entry);
  decision.verdict = header.withheld ? WITHHELD : ACCEPTED;
  decision.apply = !header.withheld;
  PushGate::Record(decision, header.incarnation, header.step, &entry);
  FinishRounds(block);
  return decision;
}

void SyncPush::SetLive(const std::vector<LiveSlot>& live) {
  MutexLock lock(&mutex_);
  live_ = live;
}

void SyncPush::Reconsider(Block* block) { FinishRounds(block); }

void SyncPush::FinishRounds(Block* block) {
  Round& round = rounds_[block->range.id];
  while (IsComplete(*block, &round)) {
    if (round.sum.empty()) {
      // Skips several rounds at once, because all slots may be several rounds ahead.
      const Step slowest = SlowestClock();
      if (slowest <= block->version) return;
      PassOver(block, slowest, {});
      BeginNext(&round);
      continue;
    }
    if (round.sum.weight() == 0) {
      PassOver(block, block->version + 1, round.sum.contributors());
    } else {
      const BlockRecord record = round.sum.TakeMean(*block);
      updater_->Apply(block, record.elements, record.terms, record.absent);
      Report(*block, record);
      blocks_finished_.fetch_add(1, std::memory_order_acq_rel);
    }
    BeginNext(&round);
  }
}

void SyncPush::BeginNext(Round* round) {
  round->sum.Clear();
  round->quorum_at = absl::InfiniteDuration();
  if (has_grace()) round->began = clock_->Now();
}

void SyncPush::PassOver(Block* block, Version version, absl::Span<const SlotId> contributors) {
  BlockRecord record;
  record.version_before = block->version;
  block->PassOver(version);
  record.kind = BlockRecord::Kind::kPassed;
  record.slots = contributors;
  Report(*block, record);
  blocks_finished_.fetch_add(version - record.version_before, std::memory_order_acq_rel);
}

Step SyncPush::SlowestClock() const {
  MutexLock lock(&mutex_);
  if (live_.empty()) return 0;
  Step slowest = std::numeric_limits<Step>::max();
  for (const LiveSlot& live : live_) slowest = std::min(slowest, live.clock);
  return slowest;
}

std::vector<LedgerEntry> SyncPush::SettledLedger(const Block& block) const {
  return rounds_[block.range.id].sum.LedgerWithout(block);
}

void SyncPush::TakeRestored(Block* block, Version highest) {
  blocks_finished_.fetch_add(block->version, std::memory_order_acq_rel);
  if (block->version < highest - 1) PassOver(block, highest - 1, {});
}

absl::Duration SyncPush::next_due() const {
  if (!has_grace()) return absl::InfiniteDuration();
  MutexLock lock(&mutex_);
  return due_;
}

bool SyncPush::TakeDue() {
  if (!has_grace()) return false;
  MutexLock lock(&mutex_);
  if (clock_->Now() < due_) return false;
  // If the grace time of another block's round ends later, IsComplete() sets due_ again.
  due_ = absl::InfiniteDuration();
  return true;
}

bool SyncPush::IsBehind(const Block& block, const LiveSlot& live) {
  return std::max(live.clock, block.MakeEntry(live.slot).last_step) < block.version;
}

bool SyncPush::IsComplete(const Block& block, Round* round) {
  const Step step = block.version + 1;
  int missing = 0;
  bool all_are_behind = true;  // of the missing slots
  bool passed = false;
  MutexLock lock(&mutex_);
  for (const LiveSlot& live : live_) {
    if (live.clock >= step) {
      passed = true;
    } else if (!round->sum.Has(live.slot)) {
      ++missing;
      all_are_behind &= IsBehind(block, live);
    }
  }
  if (round->sum.empty()) return passed && missing == 0;
  if (missing > backup_workers_) {
    round->quorum_at = absl::InfiniteDuration();
    return false;
  }
  if (all_are_behind || !has_grace()) return true;
  const absl::Duration now = clock_->Now();
  round->quorum_at = std::min(round->quorum_at, now);
  const absl::Duration ends = round->quorum_at + grace_part_ * (round->quorum_at - round->began);
  if (now >= ends) return true;
  due_ = std::min(due_, ends);
  return false;
}

int64_t SyncPush::completed_rounds() const {
  return blocks_finished_.load(std::memory_order_acquire) / static_cast<int64_t>(owned_);
}

}  // namespace torchps
