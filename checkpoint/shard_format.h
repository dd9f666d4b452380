#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "common/ids.h"

namespace torchps {

// What ShardWriter and ShardReader agree on, and only they.

inline constexpr char kShardFormat[] = "torchps shard";
// The second one, of shards with a table of missed steps. Others are written as they were before
// there was one, so that an older torchps can go on from them.
inline constexpr char kShardFormatVersion[] = "2";
inline constexpr char kShardFormatVersionWithMissed[] = "3";

inline std::string BlockTensorName(BlockId block) {
  return absl::StrFormat("block/%08d/value", block);
}
inline std::string SlotTensorName(BlockId block, int slot) {
  return absl::StrFormat("block/%08d/slot/%d", block, slot);
}
// One element where the floats are an odd number, so that the integers behind them are aligned.
inline constexpr char kPaddingTensorName[] = "padding";
// Of each block, in their order.
inline constexpr char kVersionsTensorName[] = "versions";
// A row for each block and slot that has pushed to it, ascending.
inline constexpr char kLedgerTensorName[] = "ledger";

// A row for each run of elements that have missed gradients of their block, ascending. Only where
// there is one.
inline constexpr char kMissedTensorName[] = "missed";

enum MissedColumn {
  kMissedBlock,
  kMissedBegin,  // in the block
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
