#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/cpu/aligned_array.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Keeps the part of the gradients that a lossy encoding drops, and sends it later: error feedback
// (Seide et al. 2014, "1-bit SGD"; Karimireddy et al. 2019). Q is the encoding and e the residual,
// initially 0. Each gradient g of a block is sent as Q(g + e), and e becomes g + e - Q(g + e). If
// the gradient was not applied, the sent values return to e. So the applied values plus e always
// equal the sum of all gradients, up to rounding. The servers apply values that are sent late at
// the learning rate of the later step.
//
// Thread-compatible; different threads may use different blocks at the same time. Costs one float
// per trained element plus the encoded bytes of all blocks, allocated once.
class ErrorFeedback {
 public:
  // Creates state for the trained blocks of `block_map`. REQUIRES: `encoding` is normalized and not
  // FLOAT32, because FLOAT32 is lossless.
  ErrorFeedback(const BlockMap& block_map, const EncodingSpec& encoding);

  EncodingSpec::Kind encoding() const { return encoding_; }

  // Returns the bytes to push for `block` in `step`. A second call for the same step (a retry)
  // returns the same bytes and ignores `gradient`. The bytes stay valid until the block's next
  // step. Absent elements must be zero in `gradient`; they are sent as zero and keep the residual.
  // REQUIRES: the block is trained; `gradient` is finite and as long as the block; the block's
  // previous push ended, and the previous bytes are not in use.
  absl::Span<const uint8_t> Encode(BlockId block, Step step, absl::Span<const float> gradient,
                                   absl::Span<const ElementRun> absent = {});

  // Adds the values pushed in `step` back to the residual, because the servers did not apply them
  // (REJECTED_STALE, LATE). May be repeated. Ignores steps other than the last encoded step: a
  // withheld block, for example, was not encoded.
  void TakeBack(BlockId block, Step step);

  // Residual of all trained elements, in model order. REQUIRES: no push is in progress.
  absl::Span<const float> residual() const { return residual_; }

 private:
  struct Sent {
    Step step = 0;
    bool taken_back = false;
    AlignedArray<uint8_t> bytes;
  };

  absl::Span<float> GetResidual(BlockId block);

  const std::vector<BlockRange> blocks_;
  const EncodingSpec::Kind encoding_;
  const double fraction_;
  AlignedArray<float> residual_;
  std::vector<Sent> sent_;  // by block
};

}  // namespace torchps
