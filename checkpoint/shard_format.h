#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "common/types.h"

namespace torchps {

// Names shared by ShardWriter and ShardReader only.

inline constexpr char kShardFormat[] = "torchps shard";
// Version 3 adds a table of missed steps. Shards without missed steps use version 2, so that older
// torchps versions can read them.
inline constexpr char kShardFormatVersion[] = "2";
inline constexpr char kShardFormatVersionWithMissed[] = "3";

inline std::string BlockTensorName(BlockId block) {
  return absl::StrFormat("block/%08d/value", block);
}
inline std::string SlotTensorName(BlockId block, int slot) {
  return absl::StrFormat("block/%08d/slot/%d", block, slot);
}
// Contains one element, present if the number of floats is odd, to align the integers that follow.
inline constexpr char kPaddingTensorName[] = "padding";
// The version of each block, in block order.
inline constexpr char kVersionsTensorName[] = "versions";
// A row for each block and slot that pushed to it, ascending.
inline constexpr char kLedgerTensorName[] = "ledger";

// A row for each run of elements that some gradients of the block did not contain, ascending. The
// tensor is absent if there are none.
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

}  // namespace torchps
