#include "torchps/server/store/parameter_store.h"

#include <malloc.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/common/element_runs.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

std::string NameOfElement(const ModelLayout& layout, int64_t element) {
  const auto& segments = layout.segments();
  const auto after = std::upper_bound(
      segments.begin(), segments.end(), element,
      [](int64_t position, const Segment& segment) { return position < segment.offset; });
  const Segment& segment = *(after - 1);
  return absl::StrCat("element ", element - segment.offset, " of segment '", segment.name, "'");
}

// Returns OK if the frame may declare these elements absent.
absl::Status CheckAbsent(const PushHeader& header, const Block& block) {
  if (header.step == 0 || block.range.averaged || header.withheld) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block ", header.block, " of step ", header.step,
        " came with absent elements; only a gradient that is not withheld may have some"));
  }
  const absl::Status checked = CheckRuns(header.absent, block.range.length);
  if (checked.ok()) return checked;
  return absl::InvalidArgumentError(
      absl::StrCat("block ", header.block, ", absent elements: ", checked.message()));
}

}  // namespace

ParameterStore::ParameterStore(const ModelLayout& layout, const BlockMap& map, int server,
                               const BlockUpdater* updater, PushPolicy* policy)
    : layout_(layout),
      map_(map),
      server_(server),
      policy_(policy),
      blocks_(map, server, *updater),
      snapshot_(&blocks_, policy) {}

absl::StatusOr<Block*> ParameterStore::Find(const PushHeader& header,
                                            const FramePayload& payload) const {
  Block* const block = blocks_.Find(header.block);
  if (block == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", header.block, " is not on this server, which owns ", blocks_.size(),
                     " of ", blocks_.blocks_of_all_servers()));
  }
  if (!header.absent.empty()) {
    if (absl::Status checked = CheckAbsent(header, *block); !checked.ok()) return checked;
    if (CoversAll(header.absent, block->range.length) && payload.bytes() == 0) return block;
  }
  if (header.withheld) {
    if (header.step > 0 && payload.bytes() == 0) return block;
    return absl::InvalidArgumentError(absl::StrCat(
        "block ", header.block, " is withheld at step ", header.step, " and has ", payload.bytes(),
        " bytes of payload; only a gradient may be withheld, and its payload must be empty"));
  }
  if (payload.encoding() != EncodingSpec::FLOAT32 && (header.step == 0 || block->range.averaged)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block ", header.block, " came in ", EncodingSpec::Kind_Name(payload.encoding()), "; ",
        header.step == 0 ? "initial values" : "averaged values", " travel in FLOAT32"));
  }
  // Checks the whole payload before the first change, so that a bad payload is never half applied.
  if (const absl::Status checked = payload.Check(block->range.length); !checked.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", header.block, ": ", checked.message()));
  }
  if (const int64_t bad = payload.FirstNonFinite(); bad >= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", header.slot, " sent a number that is not finite at step ",
                     header.step, ": ", NameOfElement(layout_, block->range.offset + bad)));
  }
  return block;
}

absl::Status ParameterStore::Initialize(const PushHeader& header, const FramePayload& payload,
                                        Admission admission) {
  const absl::StatusOr<Block*> found = Find(header, payload);
  if (!found.ok()) return found.status();
  Block* const block = *found;
  bool first = false;
  {
    MutexLock lock(&block->mutex);
    const absl::Status admitted = admission();
    if (!admitted.ok()) return admitted;
    if (block->version > 0) return absl::OkStatus();
    const BlockChange change(block);
    payload.CopyTo(block->values);
    first = !block->initialized;
    block->initialized = true;
    if (journal_ != nullptr) {
      BlockRecord record;
      record.kind = BlockRecord::Kind::kInitial;
      record.elements = block->values;
      journal_->Record(*block, record);
    }
  }
  if (first) blocks_.CountInitialized();
  return absl::OkStatus();
}

absl::Status ParameterStore::Push(const PushHeader& header, const FramePayload& payload,
                                  Admission admission) {
  const absl::StatusOr<Block*> found = Find(header, payload);
  if (!found.ok()) return found.status();
  Block* const block = *found;
  absl::StatusOr<PushDecision> decision;
  {
    MutexLock lock(&block->mutex);
    const absl::Status admitted = admission();
    if (!admitted.ok()) return admitted;
    if (!block->initialized) {
      return absl::AbortedError(absl::StrCat("block ", header.block, " has no values yet"));
    }
    decision = policy_->Push(block, header, payload);
    NoteVersion(block->version);
  }
  if (!decision.ok()) return decision.status();
  Count(*decision);
  return absl::OkStatus();
}

void ParameterStore::NoteVersion(Version version) {
  Version highest = highest_version_.load(std::memory_order_relaxed);
  while (version > highest &&
         !highest_version_.compare_exchange_weak(highest, version, std::memory_order_relaxed)) {
  }
}

void ParameterStore::Count(const PushDecision& decision) {
  MutexLock lock(&mutex_);
  VerdictCounts& verdicts = counters_.verdicts;
  if (decision.duplicate) {
    verdicts.set_duplicates(verdicts.duplicates() + 1);
    return;
  }
  torchps::Count(decision.verdict, &verdicts);
  if (decision.apply) counters_.lag.Add(decision.lag);
}

absl::StatusOr<bool> ParameterStore::Acknowledge(SlotId slot, Incarnation incarnation, Step step,
                                                 absl::Span<const BlockId> part, PushReply* reply) {
  // Uses two passes, so that an error does not count blocks as acknowledged. If a later incarnation
  // replaces an entry between the passes, the block still contains the push.
  const absl::flat_hash_set<BlockId> named(part.begin(), part.end());
  const auto is_asked_for = [&](const Block& block) {
    return named.empty() || named.contains(block.range.id);
  };
  size_t unseen = 0;
  size_t unseen_of_others = 0;
  reply->clear_block();
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    const LedgerEntry entry = block->MakeEntry(slot);
    const bool has_seen = entry.HasSeen(incarnation, step);
    if (!is_asked_for(*block)) {
      if (!has_seen) ++unseen_of_others;
      continue;
    }
    if (entry.incarnation > incarnation) {
      return absl::AbortedError(absl::StrCat("slot ", slot, " was taken over: block ",
                                             block->range.id, " contains a push of incarnation ",
                                             entry.incarnation,
                                             " and no longer records whether step ", step,
                                             " of incarnation ", incarnation, " was applied"));
    }
    if (!has_seen) ++unseen;
    BlockVerdict* const verdict = reply->add_block();
    verdict->set_block(block->range.id);
    verdict->set_version(block->version);
    verdict->set_verdict(entry.last_verdict);
    verdict->set_lag(entry.last_lag);
  }
  if (unseen > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the push of step ", step, " by slot ", slot, " ended before ", unseen, " of ",
                     named.empty() ? blocks_.size() : named.size(), " blocks arrived"));
  }
  uint64_t newly_acknowledged = 0;
  int answered = 0;
  for (const std::unique_ptr<Block>& block : blocks_) {
    if (!is_asked_for(*block)) continue;
    MutexLock lock(&block->mutex);
    LedgerEntry& entry = block->Ledger(slot);
    const bool is_mine = entry.incarnation == incarnation;
    const bool duplicate = is_mine && entry.acknowledged_step >= step;
    reply->mutable_block(answered++)->set_duplicate(duplicate);
    if (duplicate) continue;
    if (is_mine) entry.acknowledged_step = step;
    ++newly_acknowledged;
  }
  MutexLock lock(&mutex_);
  VerdictCounts& verdicts = counters_.verdicts;
  verdicts.set_acknowledged(verdicts.acknowledged() + newly_acknowledged);
  return unseen_of_others == 0;
}

absl::StatusOr<ParameterStore::Image> ParameterStore::Read(size_t index,
                                                           EncodingSpec::Kind encoding,
                                                           Version have) {
  TPS_CHECK(encoding != EncodingSpec::TOP_K, "a worker needs all values");
  Block* const block = &blocks_[index];
  Image image;
  image.encoding = block->range.averaged ? EncodingSpec::FLOAT32 : encoding;
  {
    MutexLock lock(&block->mutex);
    if (!block->initialized) {
      return absl::AbortedError(absl::StrCat("block ", block->range.id, " has no values yet"));
    }
    image.version = block->version;
    if (have > 0 && block->version == have) {
      image.unchanged = true;
      return image;
    }
    if (image.encoding == EncodingSpec::FLOAT32 && block->buffer != nullptr) {
      image.values = ValueBuffer::Lend(block->buffer);
      return image;
    }
  }
  // Allocates without the lock, because a large allocation faults pages in.
  image.values = grpc::Slice(EncodedBytes(image.encoding, block->range.length, /*fraction=*/1));
  MutexLock lock(&block->mutex);
  // Writing is safe because only this function uses the fresh slice. grpc::Slice does not offer
  // mutable access.
  Encode(image.encoding, block->values, /*fraction=*/1, const_cast<uint8_t*>(image.values.begin()));
  image.version = block->version;
  return image;
}

absl::StatusOr<const SharedSegment*> ParameterStore::Share() {
  MutexLock sharing(&sharing_mutex_);
  if (arena_ != nullptr) return &arena_->segment();
  absl::StatusOr<std::unique_ptr<const ValueArena>> arena = ValueArena::Create(map_, server_);
  if (!arena.ok()) return arena.status();
  arena_ = *std::move(arena);
  for (size_t index = 0; index < blocks_.size(); ++index) {
    MutexLock lock(&blocks_[index].mutex);
    blocks_[index].MoveTo(arena_->values(index), arena_->head(index));
  }
  // Returns the freed heap memory of restored values to the kernel.
  malloc_trim(0);
  return &arena_->segment();
}

bool ParameterStore::shared() const {
  MutexLock sharing(&sharing_mutex_);
  return arena_ != nullptr;
}

int ParameterStore::slots(size_t index) const {
  MutexLock lock(&blocks_[index].mutex);
  return static_cast<int>(blocks_[index].slots.size());
}

void ParameterStore::SetJournal(BlockJournal* journal) {
  journal_ = journal;
  policy_->SetJournal(journal);
}

void ParameterStore::SetLive(const std::vector<LiveSlot>& live) {
  policy_->SetLive(live);
  Reconsider();
}

void ParameterStore::Reconsider() {
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    policy_->Reconsider(block.get());
    NoteVersion(block->version);
  }
}

std::vector<LedgerEntry> ParameterStore::GetEntries(SlotId slot) {
  std::vector<LedgerEntry> entries;
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    entries.push_back(block->MakeEntry(slot));
  }
  return entries;
}

ParameterStore::Counters ParameterStore::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

int64_t ParameterStore::CountChanges() const {
  int64_t changes = 0;
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    changes += block->version;
  }
  return changes;
}

void ParameterStore::Describe(bool include_ledger, ServerStatus* status) {
  Version lowest = blocks_.size() == 0 ? 0 : std::numeric_limits<Version>::max();
  Version highest = 0;
  uint64_t nonfinite = 0;
  std::vector<uint64_t> least_applied(kMaxSlots, std::numeric_limits<uint64_t>::max());
  for (const std::unique_ptr<Block>& block : blocks_) {
    MutexLock lock(&block->mutex);
    if (!block->finite) ++nonfinite;
    lowest = std::min(lowest, block->version);
    highest = std::max(highest, block->version);
    least_applied.resize(std::min(least_applied.size(), block->ledger.size()));
    for (size_t slot = 0; slot < least_applied.size(); ++slot) {
      least_applied[slot] = std::min(least_applied[slot], block->ledger[slot].applied);
    }
    if (!include_ledger) continue;
    for (size_t slot = 0; slot < block->ledger.size(); ++slot) {
      const LedgerEntry& entry = block->ledger[slot];
      if (entry.last_step == 0) continue;
      LedgerEntryStatus* const row = status->add_ledger();
      row->set_block(block->range.id);
      row->set_slot(static_cast<int32_t>(slot));
      row->set_incarnation(entry.incarnation);
      row->set_last_step(entry.last_step);
      row->set_applied(entry.applied);
    }
  }
  for (size_t slot = 0; blocks_.size() > 0 && slot < least_applied.size(); ++slot) {
    if (least_applied[slot] == 0) continue;
    (*status->mutable_least_applied())[static_cast<int32_t>(slot)] = least_applied[slot];
  }
  status->set_min_version(lowest);
  status->set_max_version(highest);
  status->set_nonfinite_blocks(nonfinite);
  status->set_blocks(blocks_.size());
  status->set_state_bytes(state_bytes());
}

}  // namespace torchps
