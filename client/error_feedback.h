#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/cpu/aligned_array.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "proto/job.pb.h"

namespace torchps {

// What a lossy encoding takes from the gradients, kept and sent later: error feedback (Seide et al.
// 2014, "1-bit SGD"; Karimireddy et al. 2019). With Q the encoding and e the residual, which is 0
// at first, a block's gradient g goes out as Q(g + e), and e becomes g + e - Q(g + e). A gradient
// that was not applied goes back into e. So what was applied and e together are always the sum of
// all gradients, but for float rounding (and the difference that leaves a step where the rate
// changes).
//
// Thread-compatible; different blocks may be used by different threads at the same time. Costs a
// float per trained element and the encoded bytes of all blocks, which are allocated once.
class ErrorFeedback {
 public:
  // For the trained blocks of `block_map`. REQUIRES: `encoding` is normalised and not FLOAT32,
  // which loses nothing.
  ErrorFeedback(const BlockMap& block_map, const EncodingSpec& encoding);

  EncodingSpec::Kind encoding() const { return encoding_; }

  // The bytes to push for `block` in `step`. Asked again with the same step, which is a retry,
  // gives the same bytes again, whatever the gradient. They stay as they are until the block's next
  // step. REQUIRES: the block is trained, `gradient` has its length and is finite; the push of its
  // last step has ended, and nothing refers to those bytes any more. Elements that are `absent`,
  // where the gradient is zero, are sent as zero and keep their residual.
  absl::Span<const uint8_t> Encode(BlockId block, Step step, absl::Span<const float> gradient,
                                   absl::Span<const ElementRun> absent = {});

  // The block's push of `step` was answered, and not applied (REJECTED_STALE, LATE): all that it
  // carried goes back into the residual. Repeating changes nothing, and so does a step that is not
  // the last one encoded, as that of a block that was withheld.
  void TakeBack(BlockId block, Step step);

  // Of all trained elements, in the model's order. REQUIRES: no push is under way.
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
