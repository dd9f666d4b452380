#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/cpu/aligned_array.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Implements the momentum of one slot if optimizer.sgd.momentum_at is WORKER (DANA-Slim, Hakimi et
// al. 2019). For gradient g, computed at value p, with weight decay w and momentum m:
//   g += w p
//   v  = m v + g     v is initially 0
//   u  = g + m v     is pushed, and the servers compute p -= rate u
// So a slot's momentum contains only this slot's gradients, even if the servers apply them late.
// With a single slot, each gradient is computed at values that include the previous update. Then
// this equals torch.optim.SGD with nesterov=True.
//
// v includes all computed gradients, even if they are rejected, late or rolled back later. It is
// lost with this object, so another process that takes over the slot starts from 0.
//
// Thread-compatible; different threads may use different blocks at the same time. Costs one float
// per trained element.
class WorkerMomentum {
 public:
  // Returns null if `optimizer` (normalized) does not use worker momentum.
  static std::unique_ptr<WorkerMomentum> Create(const OptimizerSpec& optimizer,
                                                const ModelLayout& layout,
                                                const BlockMap& block_map);

  // Replaces the gradient of `block` by u, in place. Does not change absent elements or their v.
  // Returns false if u overflows float32; then the caller must not push the block, and v is reset
  // to 0. REQUIRES: called once per block and step; the block is trained and the gradient finite;
  // `values` are all trained elements that the gradient was computed on.
  bool Apply(BlockId block, absl::Span<const float> values, absl::Span<const ElementRun> absent,
             absl::Span<float> gradient);

  // v of all trained elements, in model order. REQUIRES: no push is in progress.
  absl::Span<const float> momentum() const { return momentum_; }

 private:
  // Consecutive elements with the same weight decay.
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
