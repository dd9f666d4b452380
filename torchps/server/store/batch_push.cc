#include "torchps/server/store/batch_push.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

// The sum may lack this part of one slot's equal share, or one sample, and still be a whole batch.
// The part is smaller than the smallest share that the coordinator's BatchBalancer assigns. So an
// update never leaves out a slot that is merely slow.
constexpr double kSlackOfShare = 1.0 / 16;
// If the equal share has fewer samples, the batch must be complete, for the same reason.
constexpr double kLeastShareWithSlack = 2;
// Shortest turn of waiting (Unsettled::turn). On a machine with more threads than cores, a step of
// a few milliseconds is often late by several times the step time, and such waits do not justify an
// early update.
constexpr absl::Duration kLeastTurn = absl::Milliseconds(50);

LagContract BoundContract(int64_t bound) {
  LagContract contract;
  if (bound < 0) return contract;
  contract.set_policy(LagContract::REJECT);
  contract.set_max_lag(bound);
  return contract;
}

}  // namespace

BatchPush::BatchPush(size_t blocks, const Options& options, const BlockUpdater* updater,
                     const Clock* clock)
    : options_(options),
      gate_(BoundContract(options.bound)),
      updater_(updater),
      clock_(clock),
      collected_(blocks) {
  TPS_CHECK(options.batch_samples > 0 && options.patience > 0, "the job is normalised");
}

absl::StatusOr<PushDecision> BatchPush::Push(Block* block, const PushHeader& header,
                                             const FramePayload& payload) {
  LedgerEntry& entry = block->Ledger(header.slot);
  absl::StatusOr<PushDecision> decision =
      gate_.Judge(entry, header.incarnation, header.step, header.base_version, block->version);
  if (!decision.ok() || decision->duplicate) return decision;
  Collected& collected = collected_[block->range.id];
  // Refuses a stale push as well. The slot's ledger entry contains an earlier push that is still in
  // the sum, so recording the entry now would report that push as applied.
  if (collected.sum.Has(header.slot)) {
    return absl::UnavailableError(
        absl::StrCat("slot ", header.slot, " has contributed to the next update of block ",
                     header.block, " already; push again when that update is made"));
  }
  if (!decision->apply) {
    PushGate::Record(*decision, header.incarnation, header.step, &entry);
    BlockRecord record;
    record.slots = absl::MakeConstSpan(&header.slot, 1);
    Report(*block, record);
    return decision;
  }
  if (header.withheld) {
    decision->verdict = WITHHELD;
    decision->apply = false;
  }
  collected.sum.Add(*block, header, payload, entry);
  const bool ends_job = !options_.per_slot && header.share > options_.batch_samples;
  collected.fill += ends_job ? header.weight : std::max(header.share, header.weight);
  collected.ends_job |= ends_job;
  PushGate::Record(*decision, header.incarnation, header.step, &entry);
  {
    MutexLock lock(&mutex_);
    ++unsettled_[header.slot].blocks;
  }
  Update(block);
  return decision;
}

void BatchPush::SetLive(const std::vector<LiveSlot>& live) {
  MutexLock lock(&mutex_);
  live_.clear();
  for (const LiveSlot& slot : live) live_.push_back(slot.slot);
}

void BatchPush::Reconsider(Block* block) { Update(block); }

std::optional<double> BatchPush::PartWhenDue(const Collected& collected) const {
  if (collected.sum.empty()) return std::nullopt;
  MutexLock lock(&mutex_);
  const auto slots = static_cast<double>(std::max<size_t>(1, live_.size()));
  const double whole =
      static_cast<double>(options_.batch_samples) * (options_.per_slot ? slots : 1);
  const double share = whole / slots;
  const double slack =
      slots > 1 && share >= kLeastShareWithSlack ? std::max(1.0, kSlackOfShare * share) : 0;
  const auto fill = static_cast<double>(collected.fill);
  if (fill >= whole - slack) return 1;
  const double part = collected.ends_job ? 1 : fill / whole;
  const auto is_done = [&](SlotId slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return collected.sum.Has(slot) || CannotContribute(slot);
  };
  if (std::all_of(live_.begin(), live_.end(), is_done)) return part;
  int turns = 0;
  for (const SlotId slot : collected.sum.contributors()) {
    turns = std::max(turns, unsettled_.at(slot).turns);
  }
  if (turns > 0 && fill >= std::ldexp(whole, -turns)) return part;
  return std::nullopt;
}

bool BatchPush::CannotContribute(SlotId slot) const {
  const auto found = ended_.find(slot);
  if (found == ended_.end()) return false;
  // An unsettled slot waits for an update here. A settled slot waits for a block on another server,
  // unless its push was answered a moment ago and its next pull is on the way. The time limit gives
  // that pull time to arrive.
  return unsettled_.count(slot) > 0 || clock_->Now() - found->second >= kLeastTurn;
}

void BatchPush::Update(Block* block) {
  Collected& collected = collected_[block->range.id];
  const std::optional<double> part = PartWhenDue(collected);
  if (!part.has_value()) return;
  if (collected.sum.weight() == 0) {
    BlockRecord record;
    record.kind = BlockRecord::Kind::kPassed;
    record.version_before = block->version;
    record.slots = collected.sum.contributors();
    block->PassOver(block->version + 1);
    Report(*block, record);
  } else {
    BlockRecord record = collected.sum.TakeMean(*block);
    record.terms.gradient_factor = *part;
    updater_->Apply(block, record.elements, record.terms, record.absent);
    Report(*block, record);
  }
  updates_.fetch_add(1, std::memory_order_relaxed);
  if (*part < 1) early_updates_.fetch_add(1, std::memory_order_relaxed);
  Settle(collected.sum.contributors());
  collected.sum.Clear();
  collected.fill = 0;
  collected.ends_job = false;
}

void BatchPush::Settle(const std::vector<SlotId>& contributors) {
  MutexLock lock(&mutex_);
  for (const SlotId slot : contributors) {
    const auto found = unsettled_.find(slot);
    if (--found->second.blocks == 0) unsettled_.erase(found);
  }
}

void BatchPush::AwaitUpdate(SlotId slot, absl::Duration usual_step, bool is_whole) {
  MutexLock lock(&mutex_);
  if (is_whole) ended_.try_emplace(slot, clock_->Now());
  const auto found = unsettled_.find(slot);
  if (found == unsettled_.end() || found->second.due < absl::InfiniteDuration()) return;
  found->second.turn = std::max(kLeastTurn, options_.patience * usual_step);
  found->second.due = clock_->Now() + found->second.turn;
}

void BatchPush::PullBegan(SlotId slot) {
  MutexLock lock(&mutex_);
  ended_.erase(slot);
}

bool BatchPush::IsSettled(SlotId slot, Step) const {
  MutexLock lock(&mutex_);
  return unsettled_.count(slot) == 0;
}

absl::Duration BatchPush::next_due() const {
  MutexLock lock(&mutex_);
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [slot, unsettled] : unsettled_) next = std::min(next, unsettled.due);
  return next;
}

bool BatchPush::TakeDue() {
  MutexLock lock(&mutex_);
  const absl::Duration now = clock_->Now();
  bool any = false;
  for (auto& [slot, unsettled] : unsettled_) {
    if (now < unsettled.due) continue;
    // Ends one turn per call, even if the process was suspended for several turns. Pushes that
    // arrived in that time may not have been read yet.
    ++unsettled.turns;
    unsettled.due = now + unsettled.turn;
    any = true;
  }
  return any;
}

UpdateCounts BatchPush::update_counts() const {
  return {updates_.load(std::memory_order_relaxed), early_updates_.load(std::memory_order_relaxed)};
}

std::vector<LedgerEntry> BatchPush::SettledLedger(const Block& block) const {
  return collected_[block.range.id].sum.LedgerWithout(block);
}

void BatchPush::TakeRestored(Block*, Version) { gate_.AllowRolledBack(); }

}  // namespace torchps
