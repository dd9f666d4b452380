#pragma once

#include "absl/status/statusor.h"
#include "server/push_log/log_record.h"
#include "server/store/block.h"
#include "server/store/block_updater.h"
#include "wire/frame_payload.h"

namespace torchps {

// Does to the block what the record tells, to the same bits as when it was recorded; false if that
// is in the block already, which may come from a checkpoint that is newer than the record. The
// sameness holds for records in their order and an `updater` of the same job.
//
// DATA_LOSS: the block is not what the record was made on: something between is missing; or the
// payload does not fit it. Then the block is as before. REQUIRES: the record is of this block.
absl::StatusOr<bool> ReplayLogRecord(const LogRecord& record, const FramePayload& payload,
                                     const BlockUpdater& updater, Block* block)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

}  // namespace torchps
