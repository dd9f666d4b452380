#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "worker/device/encoded_records.h"

namespace torchps {

// Encodes gradient blocks on the device, with error feedback. The result equals, bit for bit, the
// result of ErrorFeedback (client/error_feedback.h) on the host. The residual stays on the device.
//
// Each call queues device work on the calling thread's current stream and returns without waiting.
// Calls must not overlap. Any call may throw c10::Error.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;

  virtual const EncodedRecords& records() const = 0;
  // Returns the memory of all records, on the device.
  virtual absl::Span<const float> memory() const = 0;

  // Adds the block's gradient to the residual and writes the encoded sum into the block's record.
  // If `looks` is true, the encoder first checks the gradient: a gradient that is not finite
  // changes neither the residual nor the bytes, and the record's verdict reports it. If `looks` is
  // false, the caller knows that the gradient is finite, and the verdict is undefined. Elements in
  // `absent`, counted from the start of the block, are sent as zero and keep the residual.
  virtual absl::Status Encode(BlockId block, bool looks, absl::Span<const ElementRun> absent) = 0;
  // Adds the block's record back to the residual. REQUIRES: Encode() filled the record.
  virtual absl::Status TakeBack(BlockId block) = 0;
};

}  // namespace torchps
