#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/ids.h"
#include "proto/job.pb.h"

namespace torchps {

// The trained blocks of a push, encoded by whoever has computed them: a GPU, which so sends down
// fewer bytes. In place of the gradient's floats and of ErrorFeedback, whose bytes these are: what
// the encoding loses is kept there, and added to the next gradient.
//
// Thread-safe. What it tells of a block is of the present push: from the moment at which the block
// is ready to the end of the push, in which the bytes stay as they are, so a push that is repeated
// sends the same ones.
class EncodedBlocks {
 public:
  virtual ~EncodedBlocks() = default;

  virtual EncodingSpec::Kind encoding() const = 0;
  // Whether the block's gradient is finite; otherwise it has no bytes, and left nothing behind.
  virtual bool IsFinite(BlockId block) const = 0;
  // Where some of the block's elements are absent, those are sent as zero.
  virtual absl::Span<const uint8_t> GetBytes(BlockId block) const = 0;
  // The block was not applied, and never will be under this step's name. Repeating changes nothing,
  // and nothing does of a block that was not encoded. May only take a note.
  virtual void TakeBack(BlockId block) = 0;
};

}  // namespace torchps
