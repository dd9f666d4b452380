#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "common/ids.h"

namespace torchps {

// What ShardWriter and ShardReader agree on, and only they.

inline constexpr char kShardFormat[] = "torchps shard";
inline constexpr char kShardFormatVersion[] = "2";

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

enum LedgerColumn {
  kLedgerBlock,
  kLedgerSlot,
  kLedgerLastStep,
  kLedgerLastVerdict,
  kLedgerLastLag,
  kLedgerRejectionsInRow,
  kLedgerApplied,
  kLedgerAcknowledgedStep,
  kLedgerIncarnation,
  kLedgerColumns,
};

}  // namespace torchps
