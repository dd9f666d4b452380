#include "torchps/worker/device/encoded_outbox.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "torchps/common/check.h"
#include "torchps/transport/encoding.h"

namespace torchps {

namespace {

// Aligns each verdict, so that a GPU reads whole words.
constexpr size_t kAlignment = 16;
static_assert(sizeof(GradientVerdict) % kAlignment == 0, "bytes are aligned as verdicts are");

}  // namespace

EncodedRecords::EncodedRecords(const BlockMap& map, const EncodingSpec& encoding)
    : encoding_(encoding.kind()), fraction_(encoding.fraction()) {
  for (const BlockRange& block : map.blocks()) {
    if (block.averaged) break;
    bytes_.push_back(EncodedBytes(encoding_, block.length, fraction_));
    const size_t padded = (bytes_.back() + kAlignment - 1) / kAlignment * kAlignment;
    begins_.push_back(begins_.back() + kVerdictFloats +
                      static_cast<int64_t>(padded / sizeof(float)));
  }
}

EncodedOutbox::EncodedOutbox(const Options& options)
    : options_(options),
      shares_(*options.block_map, options.least_copy_bytes),
      is_sent_(final_.trained_blocks()) {
  TPS_CHECK(options_.host_records.size() == options_.encoder->memory().size() &&
                options_.host_averaged.size() == options_.averaged.size(),
            "a buffer of another length than what it is to hold");
}

EncodedOutbox::~EncodedOutbox() { Drop(); }

void EncodedOutbox::BeginStep() {
  MutexLock lock(&mutex_);
  TPS_CHECK(!in_step_, "a step was begun before the last one was finished");
  in_step_ = true;
  is_open_ = false;
  final_.Begin();
  waiting_.clear();
}

void EncodedOutbox::BlockFinal(BlockId block) {
  std::optional<BlockRun> share;
  {
    MutexLock lock(&mutex_);
    if (!in_step_ || !status_.ok()) return;
    share = final_.Add(block);
  }
  if (!share.has_value()) return;
  absl::StatusOr<DeviceLink::Mark> computed = options_.link->AfterCompute();
  if (!computed.ok()) return Keep(computed.status());
  const Final final{*share, *std::move(computed)};
  {
    MutexLock lock(&mutex_);
    if (!is_open_) {
      waiting_.push_back(final);
      return;
    }
  }
  SendEarly(final);
}

void EncodedOutbox::Open(OnBlock tell) {
  std::vector<BlockId> taken_back;
  {
    MutexLock lock(&mutex_);
    TPS_CHECK(in_step_ && !is_open_, "a push has begun twice, or outside of a step");
    tell_ = std::move(tell);
    taken_back = std::exchange(taken_back_, {});
    is_sent_.assign(final_.trained_blocks(), false);
  }
  if (!taken_back.empty()) {
    Keep(options_.link->InDowns(/*after=*/nullptr, [encoder = options_.encoder, taken_back] {
      absl::Status status;
      for (const BlockId block : taken_back) status.Update(encoder->TakeBack(block));
      return status;
    }));
  }
  std::vector<Final> waiting;
  {
    MutexLock lock(&mutex_);
    is_open_ = true;
    waiting = std::exchange(waiting_, {});
  }
  for (const Final& final : waiting) SendEarly(final);
}

void EncodedOutbox::SendEarly(const Final& final) {
  Send(final, [this, blocks = final.blocks](const absl::Status& status) {
    if (!status.ok()) return Keep(status);
    OnBlock tell;
    {
      MutexLock lock(&mutex_);
      tell = tell_;
    }
    // A hook of autograd may report a block while another thread drops the step.
    if (tell == nullptr) return;
    for (BlockId block = blocks.begin; block < blocks.end; ++block) tell(block);
  });
}

void EncodedOutbox::Send(const Final& final, DeviceLink::Done done, const ElementRuns& absent) {
  // Does not encode a block that is completely absent, because the push sends no elements for it.
  std::vector<std::pair<BlockId, ElementRuns>> encoded;
  for (BlockId id = final.blocks.begin; id < final.blocks.end; ++id) {
    const BlockRange& block = options_.block_map->blocks()[id];
    ElementRuns runs;
    if (!absent.empty()) runs = RunsWithin(absent, block.offset, block.offset + block.length);
    if (!CoversAll(runs, block.length)) encoded.emplace_back(id, std::move(runs));
  }
  {
    MutexLock lock(&mutex_);
    for (const auto& block : encoded) is_sent_[block.first] = true;
  }
  Keep(options_.link->InDowns(final.computed, [encoder = options_.encoder, looks = options_.looks,
                                               encoded = std::move(encoded)] {
    absl::Status status;
    for (const auto& [block, runs] : encoded) {
      if (status.ok()) status = encoder->Encode(block, looks, runs);
    }
    return status;
  }));
  const ElementRun records = options_.encoder->records().Of(final.blocks);
  const int64_t length = records.end - records.begin;
  Keep(options_.link->Down(
      /*after=*/nullptr, options_.encoder->memory().subspan(records.begin, length),
      options_.host_records.subspan(records.begin, length), std::move(done)));
}

absl::Status EncodedOutbox::Finish(const ElementRuns& absent) {
  std::vector<BlockRun> left;
  {
    MutexLock lock(&mutex_);
    TPS_CHECK(in_step_ && is_open_, "there is no step to finish");
    if (status_.ok()) left = final_.LeftOfTrained();
  }
  const absl::StatusOr<DeviceLink::Mark> computed = options_.link->AfterCompute();
  Keep(computed.status());
  if (computed.ok()) {
    for (const BlockRun& blocks : left) Send({blocks, *computed}, KeepsError(), absent);
    if (!options_.averaged.empty()) {
      Keep(options_.link->Down(*computed, options_.averaged, options_.host_averaged, KeepsError()));
    }
  }
  return EndStep();
}

void EncodedOutbox::Drop() { EndStep().IgnoreError(); }

absl::Status EncodedOutbox::EndStep() {
  options_.link->AwaitDowns();
  MutexLock lock(&mutex_);
  in_step_ = false;
  tell_ = nullptr;
  waiting_.clear();
  return status_;
}

EncodingSpec::Kind EncodedOutbox::encoding() const {
  return options_.encoder->records().encoding();
}

bool EncodedOutbox::IsFinite(BlockId block) const {
  if (!options_.looks) return true;
  const float* const record =
      options_.host_records.data() + options_.encoder->records().begin(block);
  return EncodedRecords::GetVerdict(record)->finite != 0;
}

absl::Span<const uint8_t> EncodedOutbox::GetBytes(BlockId block) const {
  const EncodedRecords& records = options_.encoder->records();
  const float* const record = options_.host_records.data() + records.begin(block);
  return absl::MakeConstSpan(EncodedRecords::GetBytes(record), records.bytes(block));
}

void EncodedOutbox::TakeBack(BlockId block) {
  if (options_.block_map->blocks()[block].averaged) return;
  MutexLock lock(&mutex_);
  if (!is_sent_[block] || !IsFinite(block)) return;
  is_sent_[block] = false;
  taken_back_.push_back(block);
}

DeviceLink::Done EncodedOutbox::KeepsError() {
  return [this](const absl::Status& status) { Keep(status); };
}

void EncodedOutbox::Keep(const absl::Status& error) {
  MutexLock lock(&mutex_);
  status_.Update(error);
}

}  // namespace torchps
