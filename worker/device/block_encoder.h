#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "worker/device/encoded_records.h"

namespace torchps {

// Encodes a gradient's blocks where a device has them, with error feedback, to the bits that
// ErrorFeedback (client/error_feedback.h) gives on the host; the residual stays on the device.
//
// Calls give the device work, in the order that the calling thread has made current, and do not
// wait for it. One call at a time. May throw what torch throws.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;

  virtual const EncodedRecords& records() const = 0;
  // All records, on the device.
  virtual absl::Span<const float> memory() const = 0;

  // Adds the block's gradient to its residual, and fills its record with what is sent of the sum.
  // With `looks` it looks at the gradient first: one that is not finite leaves residual and bytes
  // alone, and the record's verdict tells; without, the gradient is known to be finite, and the
  // verdict is of no meaning. Elements that are `absent`, counted from the block's first, are sent
  // as zero, and keep their residual.
  virtual absl::Status Encode(BlockId block, bool looks, absl::Span<const ElementRun> absent) = 0;
  // What the block's record has goes back into the residual. REQUIRES: Encode() has filled it.
  virtual absl::Status TakeBack(BlockId block) = 0;
};

}  // namespace torchps
