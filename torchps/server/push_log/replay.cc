#include "torchps/server/push_log/replay.h"

#include "absl/strings/str_cat.h"
#include "torchps/common/element_runs.h"

namespace torchps {
namespace {

absl::Status Missing(const LogRecord& record, const Block& block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) {
  return absl::DataLossError(absl::StrCat(
      "record ", record.sequence, " of the push log creates version ", record.version, " of block ",
      block.range.id, " from version ", record.base_version, "; the block is at version ",
      block.version, block.initialized ? "" : " and has no values",
      ": the changes in between are neither in the log nor in the checkpoint"));
}

// True if a change of this kind raises the block's version.
bool RaisesVersion(LogKind kind) {
  return kind == LogKind::kGradient || kind == LogKind::kPassedOver;
}

absl::Status CheckPayload(const LogRecord& record, const FramePayload& payload,
                          const Block& block) {
  const bool has_elements =
      record.kind == LogKind::kInitialValues || record.kind == LogKind::kGradient;
  absl::Status checked;
  const bool may_lack_some = record.kind == LogKind::kGradient && !block.range.averaged;
  if (!record.absent.empty() && !may_lack_some) {
    checked = absl::DataLossError("it contains absent elements, which its kind does not allow");
  } else if (absl::Status runs = CheckRuns(record.absent, block.range.length); !runs.ok()) {
    checked = runs;
  } else if (CoversAll(record.absent, block.range.length) && payload.bytes() == 0) {
    return absl::OkStatus();
  } else if (has_elements) {
    checked = payload.Check(block.range.length);
  } else if (payload.bytes() > 0) {
    checked = absl::DataLossError("it contains a payload, which its kind does not allow");
  }
  if (checked.ok()) return checked;
  return absl::DataLossError(absl::StrCat("record ", record.sequence,
                                          " of the push log does not fit block ", block.range.id,
                                          ": ", checked.message()));
}

}  // namespace

absl::StatusOr<bool> ReplayLogRecord(const LogRecord& record, const FramePayload& payload,
                                     const BlockUpdater& updater, Block* block) {
  if (absl::Status checked = CheckPayload(record, payload, *block); !checked.ok()) return checked;
  // If the values contain the change, so does the ledger.
  if (record.version < block->version) return false;
  if (RaisesVersion(record.kind)) {
    if (record.version == block->version) return false;
    if (!block->initialized) return Missing(record, *block);
  }
  if (record.base_version != block->version) return Missing(record, *block);
  switch (record.kind) {
    case LogKind::kInitialValues: {
      const BlockChange change(block);
      payload.CopyTo(block->values);
      block->initialized = true;
      break;
    }
    case LogKind::kGradient:
      updater.Apply(block, payload, record.terms, record.absent);
      break;
    case LogKind::kPassedOver:
      block->PassOver(record.version);
      break;
    case LogKind::kLedger:
      break;
  }
  for (const LogLedgerRow& row : record.ledger) {
    LedgerEntry& entry = block->Ledger(row.slot);
    if (entry.IsBefore(row.entry)) entry = row.entry;
  }
  return true;
}

}  // namespace torchps
