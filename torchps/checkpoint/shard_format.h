#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/missed_steps.h"
#include "torchps/common/types.h"

namespace torchps {

// Names shared by ShardWriter and ShardReader only.

inline constexpr char kShardFormat[] = "torchps shard";
// Version 3 adds a table of missed steps. Shards without missed steps
// (torchps/common/missed_steps.h) use version 2, so that older torchps versions can read them.
inline constexpr char kShardFormatVersion[] = "2";
inline constexpr char kShardFormatVersionWithMissed[] = "3";

inline std::string BlockTensorName(BlockId block) {
  return absl::StrFormat("block/%08d/value", block);
}
inline std::string SlotTensorName(BlockId block, int slot) {
  return absl::StrFormat("block/%08d/slot/%d", block, slot);
}
// A tensor of one float, present if the number of floats is odd. It aligns the integers that
// follow.
inline constexpr char kPaddingTensorName[] = "padding";
// The version of each block, in block order.
inline constexpr char kVersionsTensorName[] = "versions";
// A table with a row for each block and each slot that pushed to the block, ascending.
inline constexpr char kLedgerTensorName[] = "ledger";

// A table with a row for each run of elements that some updates of the block did not contain,
// ascending. The tensor is absent if there are no such runs.
inline constexpr char kMissedTensorName[] = "missed";

enum MissedColumn {
  kMissedBlock,
  kMissedBegin,  // offset in the block
  kMissedEnd,
  kMissedSteps,
  kMissedColumns,
};

enum LedgerColumn {
  kLedgerBlock,
  kLedgerSlot,
  kLedgerLastStep,
  kLedgerLastVerdict,
  kLedgerLastLag,
  kLedgerUnused,
  kLedgerApplied,
  kLedgerAcknowledgedStep,
  kLedgerIncarnation,
  kLedgerColumns,
};

// The complete state of a block at one moment, as a checkpoint stores it. Borrows the arrays.
struct BlockImage {
  BlockRange range;
  Version version = 0;
  absl::Span<const float> values;
  // The optimizer's arrays, each as long as `values`; empty for an averaged block.
  std::vector<absl::Span<const float>> slots;
  // Indexed by slot. Shorter than the slot count if the last slots did not push.
  absl::Span<const LedgerEntry> ledger;
  // Runs of elements that some of the `version` updates did not contain.
  absl::Span<const MissedRun> missed;
};

// Holds a BlockImage together with the arrays. Reuse one buffer for many blocks: the arrays keep
// their capacity, so later reads do not cause page faults.
struct BlockBuffer {
  BlockRange range;
  Version version = 0;
  std::vector<float> values;
  std::vector<std::vector<float>> slots;  // optimizer arrays
  std::vector<LedgerEntry> ledger;
  std::vector<MissedRun> missed;

  // Returns an image that borrows from this buffer.
  BlockImage image() const {
    BlockImage image;
    image.range = range;
    image.version = version;
    image.values = values;
    image.slots.assign(slots.begin(), slots.end());
    image.ledger = ledger;
    image.missed = missed;
    return image;
  }
};

}  // namespace torchps
