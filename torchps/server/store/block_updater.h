#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"
#include "torchps/job/schedule.h"
#include "torchps/proto/job.pb.h"
#include "torchps/server/optimizer/optimizer.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {

// Applies gradients to blocks: runs the optimizer with the schedule and the parameter group of each
// element. For an averaged block, updates the running average.
//
// Immutable after Create, so thread-safe; the caller holds the block's lock.
class BlockUpdater {
 public:
  // `optimizer` is normalized; `workers` is the job's number of workers. INVALID_ARGUMENT: a
  // segment names a group that the job lacks, or a group that does not match the segment's name.
  static absl::StatusOr<std::unique_ptr<BlockUpdater>> Create(const OptimizerSpec& optimizer,
                                                              const ModelLayout& layout,
                                                              const BlockMap& map, int workers = 1);

  // Bytes that a block of this range needs: the values, and the arrays that Allocate adds.
  int64_t StateBytes(const BlockRange& range) const;

  // Allocates the block's optimizer slots in their initial state.
  void Allocate(Block* block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

  // Runs one optimizer step in place, decoding the payload as it reads. For an averaged block, sets
  // value += share * (pushed - value). Raises the version by one.
  //
  // The learning rate's schedule depends on the progress in `terms` or on the block's version, as
  // the job chooses (ScheduleSpec.by). The gradient factor multiplies the optimizer's input before
  // weight decay. It also multiplies the share, which is at most 1.
  //
  // Leaves `absent` elements unchanged, values and optimizer slots, and counts a missed step for
  // them. As in torch.optim for a parameter without a gradient, their step count does not rise; the
  // schedule does advance. Checks periodically that the block is finite.
  // REQUIRES: the gradient is checked, and has the length of the block or, if all elements are
  // absent, length 0. Averaged blocks have no absent elements.
  void Apply(Block* block, const FramePayload& payload, const GradientTerms& terms,
             absl::Span<const ElementRun> absent = {}) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  void Apply(Block* block, absl::Span<const float> gradient, const GradientTerms& terms,
             absl::Span<const ElementRun> absent = {}) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

 private:
  // Consecutive elements that one step treats alike.
  struct Piece {
    int64_t begin = 0;  // in the block
    int64_t end = 0;
    int group = -1;
    // The next two fields are per gradient, and unset in pieces_.
    int64_t missed = 0;
    bool absent = false;
  };

  BlockUpdater(std::unique_ptr<Optimizer> optimizer, Schedule schedule, ParameterGroups groups);

  // Maps consecutive runs of a gradient to pieces.
  class Cursor;

  // Returns the block's pieces, split where elements are absent or have missed steps.
  std::vector<Piece> CutPieces(const Block& block, absl::Span<const ElementRun> absent) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Implements Apply(); `feed` passes the gradient to a cursor.
  template <typename Feed>
  void ApplyTo(Block* block, const GradientTerms& terms, absl::Span<const ElementRun> absent,
               Feed feed) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

  const std::unique_ptr<Optimizer> optimizer_;
  const Schedule schedule_;
  const ParameterGroups groups_;
  std::vector<std::vector<Piece>> pieces_;  // by block id
};

}  // namespace torchps
