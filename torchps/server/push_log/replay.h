#pragma once

#include "absl/status/statusor.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_updater.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {

// Applies a logged change to the block, with the same bits as the original change. Returns false if
// the block already contains the change, because the checkpoint may be newer than the record. Bits
// match if records are replayed in order with an `updater` of the same job.
//
// DATA_LOSS: the block is not at the version that the record starts from, because records are
// missing, or the payload does not fit the block. The block is unchanged then.
// REQUIRES: the record belongs to this block.
absl::StatusOr<bool> ReplayLogRecord(const LogRecord& record, const FramePayload& payload,
                                     const BlockUpdater& updater, Block* block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

}  // namespace torchps
