#include "server/store/sync_push.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/optimizer/span_math.h"

namespace torchps {

namespace {

// Gradients are summed up as if these were one sample: so a sum is too large for a float only where
// the mean is. A power of two, which changes the exponents and no other bit. Rounds of more samples
// are still summed up right, but for gradients near the largest float.
constexpr float kSamplesAsOne = 1 << 24;

}  // namespace

SyncPush::SyncPush(size_t blocks, size_t owned, int backup_workers, const BlockUpdater* updater,
                   const Grace& grace, const Clock* clock)
    : backup_workers_(backup_workers),
      owned_(owned),
      updater_(updater),
      grace_(grace),
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
  // Judged by what all blocks have finished, not by this one: it is what keeps them together.
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
    Tell(*block, record);
    return decision;
  }

  if (header.step > block->version + 1) {
    return absl::UnavailableError(absl::StrCat(
        "block ", header.block, " is about to go on to step ", header.step, "; push again"));
  }

  Round& round = rounds_[block->range.id];
  if (std::find(round.contributors.begin(), round.contributors.end(), header.slot) !=
      round.contributors.end()) {
    // A slot gives to a round once. Its ledger entry goes with the round, so nothing is said of
    // this push before the round has ended; then it is late.
    return absl::UnavailableError(
        absl::StrCat("slot ", header.slot, "'s incarnation ", entry.incarnation,
                     " has given to step ", header.step, " of block ", header.block,
                     " before it was taken over; push again when that step is over"));
  }
  if (round.contributors.empty()) round.weighted_sum.assign(block->range.length, 0.0f);
  // What is withheld takes part in its round with no weight.
  const uint32_t samples = header.withheld ? 0 : header.weight;
  if (!header.withheld) {
    AddToRound(*block, header, payload, &round);
    const bool is_first = round.weight == 0;
    round.absent = is_first ? header.absent : RunsInBoth(round.absent, header.absent);
    round.progress = is_first ? header.progress : std::min(round.progress, header.progress);
  }
  round.weight += samples;
  round.contributors.push_back(header.slot);
  round.ledger_before.push_back(entry);

  decision.verdict = header.withheld ? WITHHELD : ACCEPTED;
  decision.apply = !header.withheld;
  PushGate::Record(decision, header.incarnation, header.step, &entry);
  FinishRounds(block);
  return decision;
}

void SyncPush::AddToRound(const Block& block, const PushHeader& header, const FramePayload& payload,
                          Round* round) {
  const float weight = static_cast<float>(header.weight) / kSamplesAsOne;
  const auto add = [&](int64_t first, absl::Span<const float> run) {
    AddScaled(run.data(), weight, absl::MakeSpan(round->weighted_sum).subspan(first, run.size()));
  };
  if (header.absent.empty()) {
    payload.ForEachRun(block.range.length, add);
    return;
  }
  if (CoversAll(header.absent, block.range.length)) return;
  // A gradient that has nothing for an element adds nothing to it, whatever was sent in its place.
  payload.ForEachRun(block.range.length, [&](int64_t first, absl::Span<const float> run) {
    const auto end = first + static_cast<int64_t>(run.size());
    int64_t next = first;
    for (const ElementRun& gap : RunsWithin(header.absent, first, end)) {
      const int64_t gap_begin = first + gap.begin;
      if (next < gap_begin) add(next, run.subspan(next - first, gap_begin - next));
      next = first + gap.end;
    }
    if (next < end) add(next, run.subspan(next - first));
  });
}

void SyncPush::SetLive(const std::vector<LiveSlot>& live) {
  MutexLock lock(&mutex_);
  live_ = live;
}

void SyncPush::Reconsider(Block* block) { FinishRounds(block); }

void SyncPush::FinishRounds(Block* block) {
  Round& round = rounds_[block->range.id];
  while (IsComplete(*block, &round)) {
    if (round.contributors.empty()) {
      // All at once, since all slots may have come from rounds further on.
      const Step slowest = SlowestClock();
      if (slowest <= block->version) return;
      PassOver(block, slowest, {});
      BeginNext(&round);
      continue;
    }
    if (round.weight == 0) {
      PassOver(block, block->version + 1, round.contributors);
    } else {
      const float scale = static_cast<float>(1.0 / round.weight) * kSamplesAsOne;
      Scale(scale, absl::MakeSpan(round.weighted_sum));
      BlockRecord record;
      record.kind = BlockRecord::Kind::kGradient;
      round.latest_progress = std::max(round.latest_progress, round.progress);
      record.terms.progress = round.latest_progress;
      record.absent = round.absent;
      if (!CoversAll(record.absent, block->range.length)) {
        record.elements = absl::MakeConstSpan(round.weighted_sum);
      }
      record.slots = round.contributors;
      updater_->Apply(block, record.elements, record.terms, record.absent);
      Tell(*block, record);
      blocks_finished_.fetch_add(1, std::memory_order_acq_rel);
    }
    BeginNext(&round);
  }
}

void SyncPush::BeginNext(Round* round) {
  round->contributors.clear();
  round->ledger_before.clear();
  round->absent.clear();
  round->weight = 0;
  round->quorum_at = absl::InfiniteDuration();
  if (has_grace()) round->began = clock_->Now();
}

void SyncPush::PassOver(Block* block, Version version, absl::Span<const SlotId> contributors) {
  BlockRecord record;
  record.version_before = block->version;
  block->PassOver(version);
  record.kind = BlockRecord::Kind::kPassed;
  record.slots = contributors;
  Tell(*block, record);
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
  std::vector<LedgerEntry> ledger = block.ledger;
  const Round& round = rounds_[block.range.id];
  for (size_t i = 0; i < round.contributors.size(); ++i) {
    ledger[round.contributors[i]] = round.ledger_before[i];
  }
  return ledger;
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
  // A round that goes on, since its quorum came later, notes its own anew.
  due_ = absl::InfiniteDuration();
  return true;
}

bool SyncPush::IsBehind(const Block& block, const LiveSlot& live) {
  return std::max(live.clock, block.EntryOf(live.slot).last_step) < block.version;
}

bool SyncPush::IsComplete(const Block& block, Round* round) {
  const Step step = block.version + 1;
  int missing = 0;
  bool all_are_behind = true;  // of those
  bool passed = false;
  MutexLock lock(&mutex_);
  for (const LiveSlot& live : live_) {
    if (live.clock >= step) {
      passed = true;
    } else if (std::find(round->contributors.begin(), round->contributors.end(), live.slot) ==
               round->contributors.end()) {
      ++missing;
      all_are_behind &= IsBehind(block, live);
    }
  }
  if (round->contributors.empty()) return passed && missing == 0;
  if (missing > backup_workers_) {
    round->quorum_at = absl::InfiniteDuration();
    return false;
  }
  if (all_are_behind || !has_grace()) return true;
  const absl::Duration now = clock_->Now();
  round->quorum_at = std::min(round->quorum_at, now);
  const absl::Duration ends =
      round->quorum_at + std::max(grace_.least, grace_.part * (round->quorum_at - round->began));
  if (now >= ends) return true;
  due_ = std::min(due_, ends);
  return false;
}

int64_t SyncPush::completed_rounds() const {
  return blocks_finished_.load(std::memory_order_acquire) / static_cast<int64_t>(owned_);
}

}  // namespace torchps
