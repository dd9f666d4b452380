#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/element_runs.h"
#include "common/model_layout.h"
#include "job/schedule.h"
#include "proto/job.pb.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/parameter_groups.h"
#include "server/store/block.h"
#include "server/store/gradient_terms.h"
#include "wire/frame_payload.h"

namespace torchps {

// What a gradient does to a block: the optimizer, its schedule and its parameter groups on the
// right runs of elements; for an averaged block the running average.
//
// Immutable after Create, so thread-safe; the caller holds the block's lock.
class BlockUpdater {
 public:
  // `optimizer` is normalised, and so many `workers` the job's. INVALID_ARGUMENT: a segment names a
  // group that the job lacks, or not the one that its name belongs to.
  static absl::StatusOr<std::unique_ptr<BlockUpdater>> Create(const OptimizerSpec& optimizer,
                                                              const ModelLayout& layout,
                                                              const BlockMap& map, int workers = 1);

  // What a block like this one takes: its values, and what Allocate adds.
  int64_t StateBytes(const BlockRange& range) const;

  // Gives the block memory for its optimizer slots, in their initial state.
  void Allocate(Block* block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

  // One optimizer step with this gradient, in place, decoding as it reads; or, for an averaged
  // block, value += share * (pushed - value). Raises the version by one. The learning rate's
  // schedule goes by the progress in `terms`, or by the block's version. A gradient factor is on
  // what the optimizer takes, before weight decay, and on the share, which is 1 at most. Elements
  // that are `absent` are left alone, values and optimizer slots, and count the step as missed:
  // their next one is their next, as torch.optim has it of a parameter without a gradient. The
  // learning rate's schedule goes on for all. Looks now and then whether the block is still finite.
  // REQUIRES: as many elements as the block has, and a
  // payload that has been checked; or none, and all are absent. None of an averaged block is.
  void Apply(Block* block, const FramePayload& payload, const GradientTerms& terms,
             absl::Span<const ElementRun> absent = {}) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  void Apply(Block* block, absl::Span<const float> gradient, const GradientTerms& terms,
             absl::Span<const ElementRun> absent = {}) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

 private:
  // A run of a block's elements that one step treats alike.
  struct Piece {
    int64_t begin = 0;  // in the block
    int64_t end = 0;
    int group = -1;
    // Of one gradient, and never of pieces_.
    int64_t missed = 0;
    bool absent = false;
  };

  BlockUpdater(std::unique_ptr<Optimizer> optimizer, Schedule schedule, ParameterGroups groups);

  // Feeds consecutive runs of a gradient to the pieces they fall into.
  class Cursor;

  // The block's pieces, cut further where elements are absent or have missed steps.
  std::vector<Piece> CutPieces(const Block& block, absl::Span<const ElementRun> absent) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);
  // Apply() with what feeds the gradient to a cursor.
  template <typename Feed>
  void ApplyTo(Block* block, const GradientTerms& terms, absl::Span<const ElementRun> absent,
               Feed feed) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

  const std::unique_ptr<Optimizer> optimizer_;
  const Schedule schedule_;
  const ParameterGroups groups_;
  std::vector<std::vector<Piece>> pieces_;  // by block id
};

}  // namespace torchps
