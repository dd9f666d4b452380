#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/cpu/aligned_array.h"
#include "common/cpu/instruction_set.h"
#include "common/element_runs.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"

namespace torchps {

// A slot's own momentum, where optimizer.sgd.momentum_at is WORKER (DANA-Slim, Hakimi et al. 2019).
// With gradient g, the value p that it was computed on, weight decay w and momentum m:
//   g += w p
//   v  = m v + g     v is 0 at first
//   u  = g + m v     is pushed, and the servers do p -= rate u
// So a slot's momentum holds its own gradients only, however late the servers apply them. One slot
// whose step sees the one before is torch.optim.SGD with nesterov.
//
// v has what was computed, not what was applied: a gradient that is rejected, late or rolled back
// stays in it. It lives as long as this object, so whoever takes over the slot begins with 0.
//
// Thread-compatible; different blocks may be used by different threads at the same time. Costs a
// float per trained element.
class WorkerMomentum {
 public:
  // Null where the momentum of `optimizer`, which is normalised, is not in the workers.
  static std::unique_ptr<WorkerMomentum> Create(const OptimizerSpec& optimizer,
                                                const ModelLayout& layout,
                                                const BlockMap& block_map);

  // Makes u of the gradient of `block`, in place. REQUIRES: once per block and step; the block is
  // trained, its gradient finite; `values` are all trained elements as it was computed on them.
  // Elements that are `absent` are left alone, and so is their v.
  // False: u is beyond what float32 holds. Then the block is not to be pushed, and its v is 0.
  bool Apply(BlockId block, absl::Span<const float> values, absl::Span<const ElementRun> absent,
             absl::Span<float> gradient);

  // v of all trained elements, in the model's order. REQUIRES: no push is under way.
  absl::Span<const float> momentum() const { return momentum_; }

 private:
  // Elements that follow each other and decay alike.
  struct Piece {
    int64_t begin = 0;  // in the flat vector
    int64_t end = 0;
    float decay = 0;
  };

  WorkerMomentum(const OptimizerSpec& optimizer, const ModelLayout& layout,
                 const BlockMap& block_map);

  const std::vector<BlockRange> blocks_;
  const InstructionSet set_ = BestInstructionSet();
  const float factor_;
  std::vector<Piece> pieces_;
  AlignedArray<float> momentum_;
};

}  // namespace torchps
