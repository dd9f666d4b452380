#include "tests/simulation/planted_faults.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "torchps/common/check.h"
#include "torchps/transport/encoding.h"

namespace torchps::simulation {
namespace {

// Values and ledger of a block, without collected pushes.
struct Content {
  std::vector<float> values;
  std::vector<LedgerEntry> ledger;
};

// Applies `change` to a copy of the block's content and restores the block from it. Leaves the
// block unchanged if `change` returns false.
void Change(const Clock* clock, ParameterStore* store, size_t index,
            absl::FunctionRef<bool(Content*)> change) {
  const auto copy = store->snapshot().MakeCopy();
  if (!store->snapshot().Capture(index, *clock, copy.get()).ok()) return;
  BlockImage image = copy->image();
  Content content;
  content.values.assign(image.values.begin(), image.values.end());
  content.ledger.assign(image.ledger.begin(), image.ledger.end());
  if (!change(&content)) return;
  image.values = content.values;
  image.ledger = content.ledger;
  TPS_CHECK(store->snapshot().Restore(image).ok(), "a copy of a block can be restored");
}

void ChangeEntry(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot,
                 absl::FunctionRef<bool(LedgerEntry*)> change) {
  for (size_t index = 0; index < store->owned(); ++index) {
    if (store->block_id(index) != block) continue;
    Change(clock, store, index, [&](Content* content) {
      return static_cast<size_t>(slot) < content->ledger.size() && change(&content->ledger[slot]);
    });
  }
}

}  // namespace

void ForgetStep(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot, Step step) {
  ChangeEntry(clock, store, block, slot, [step](LedgerEntry* entry) {
    if (entry->last_step < step) return false;
    entry->last_step = step - 1;
    return true;
  });
}

void ForgetIncarnation(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot,
                       Incarnation incarnation) {
  ChangeEntry(clock, store, block, slot, [incarnation](LedgerEntry* entry) {
    if (entry->last_step == 0 || entry->incarnation == incarnation) return false;
    entry->incarnation = incarnation;
    return true;
  });
}

void ForgetLedgers(const Clock* clock, ParameterStore* store) {
  for (size_t index = 0; index < store->owned(); ++index) {
    Change(clock, store, index, [](Content* content) {
      content->ledger.clear();
      return true;
    });
  }
}

void CollectedPushes::OnPush(const PushHeader& header) {
  std::vector<PushHeader>& pushes = blocks_[header.block].pushes;
  const bool is_repeat = std::any_of(pushes.begin(), pushes.end(), [&](const PushHeader& push) {
    return push.slot == header.slot;
  });
  if (!is_repeat) pushes.push_back(header);
}

void CollectedPushes::OnUpdates(const Clock* clock, ParameterStore* store, bool gives_whole_mean) {
  for (size_t index = 0; index < store->owned(); ++index) {
    const absl::StatusOr<ParameterStore::Image> image = store->Read(index);
    if (!image.ok()) continue;
    Block& block = blocks_[store->block_id(index)];
    const bool is_updated = image->version > block.version;
    const float before = block.value;
    block.version = image->version;
    std::memcpy(&block.value, image->values.begin(), sizeof(block.value));
    if (!is_updated) continue;
    double sum = 0, weight = 0;
    for (const PushHeader& push : std::exchange(block.pushes, {})) {
      if (push.withheld) continue;
      weight += push.weight;
      if (!push.absent.empty()) continue;
      sum += push.weight * GetGradient(push.slot, push.incarnation, push.step, push.block);
    }
    if (!gives_whole_mean || weight == 0) continue;
    block.value = before - static_cast<float>(sum / weight);
    Change(clock, store, index, [&](Content* content) {
      std::fill(content->values.begin(), content->values.end(), block.value);
      return true;
    });
  }
}

void CollectedPushes::Rewind(const Clock* clock, ParameterStore* store) {
  for (size_t index = 0; index < store->owned(); ++index) {
    Block& block = blocks_[store->block_id(index)];
    for (const PushHeader& push : std::exchange(block.pushes, {})) {
      const FramePayload payload = ReadPayload(*scenario_, push);
      store->Push(push, payload, [] { return absl::OkStatus(); }).IgnoreError();
    }
    // Changes nothing but the ledger: a captured block leaves out the entries of collected pushes,
    // and the sums stay.
    Change(clock, store, index, [](Content*) { return true; });
  }
  blocks_.clear();
}

FramePayload ReadPayload(const Scenario& scenario, const PushHeader& header) {
  if (header.withheld || !header.absent.empty()) return FramePayload();
  const bool is_initial = header.step == 0;
  const EncodingSpec::Kind encoding =
      is_initial ? EncodingSpec::FLOAT32 : scenario.job.wire().push().kind();
  const int64_t length = scenario.map.blocks()[header.block].length;
  const float element =
      is_initial ? 0 : GetGradient(header.slot, header.incarnation, header.step, header.block);
  const std::vector<float> elements(length, element);
  std::vector<uint8_t> bytes(EncodedBytes(encoding, length, /*fraction=*/0));
  Encode(encoding, elements, /*fraction=*/0, bytes.data());
  std::vector<grpc::Slice> slices;
  slices.emplace_back(bytes.data(), bytes.size());
  return FramePayload(std::move(slices), /*skipped_bytes=*/0, encoding);
}

}  // namespace torchps::simulation
