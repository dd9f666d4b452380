#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/ids.h"
#include "proto/job.pb.h"

namespace torchps {

// Provides the trained blocks of a push in encoded form, for example from a GPU, which then copies
// fewer bytes to the host. Replaces the gradient's floats and ErrorFeedback, with the same bytes.
// The implementation keeps the encoding error and adds it to the next gradient.
//
// Thread-safe. The functions refer to the current push, from the time that the block is ready until
// the push ends. The bytes do not change during that time, so a repeated push sends the same bytes.
class EncodedBlocks {
 public:
  virtual ~EncodedBlocks() = default;

  virtual EncodingSpec::Kind encoding() const = 0;
  // True if the block's gradient is finite. Otherwise the block does not provide bytes, and the
  // kept encoding error is unchanged.
  virtual bool IsFinite(BlockId block) const = 0;
  // Returns the block's encoded bytes. Absent elements are sent as zero.
  virtual absl::Span<const uint8_t> GetBytes(BlockId block) const = 0;
  // Records that the block was not applied and never will be for this step. May be repeated.
  // Ignores blocks that were not encoded. May defer the work.
  virtual void TakeBack(BlockId block) = 0;
};

}  // namespace torchps
