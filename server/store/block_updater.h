#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/parameter_groups.h"
#include "server/optimizer/schedule.h"
#include "server/store/block.h"
#include "wire/frame_payload.h"

namespace torchps {

// What a gradient does to a block: the optimizer, its schedule and its parameter groups on the
// right runs of elements; for an averaged block the running average.
//
// Immutable after Create, so thread-safe; the caller holds the block's lock.
class BlockUpdater {
 public:
  // `optimizer` is normalised. INVALID_ARGUMENT: a segment names a group that the job lacks, or
  // not the one that its name belongs to.
  static absl::StatusOr<std::unique_ptr<BlockUpdater>> Create(const OptimizerSpec& optimizer,
                                                              const ModelLayout& layout,
                                                              const BlockMap& map);

  // What a block like this one takes: its values, and what Allocate adds.
  int64_t StateBytes(const BlockRange& range) const;

  // Gives the block memory for its optimizer slots, in their initial state.
  void Allocate(Block* block) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

  // One optimizer step with this gradient, in place, decoding as it reads; or, for an averaged
  // block, value += share * (pushed - value). Raises the version by one. `rate_factor` is on the
  // learning rate, and on the share. REQUIRES: as many elements as the block has, and a payload
  // that has been checked.
  void Apply(Block* block, const FramePayload& payload, double rate_factor, double share) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);
  void Apply(Block* block, absl::Span<const float> gradient, double rate_factor, double share) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex);

 private:
  // A run of a block's elements that share hyperparameters.
  struct Piece {
    int64_t begin = 0;  // in the block
    int64_t end = 0;
    int group = -1;
  };

  BlockUpdater(std::unique_ptr<Optimizer> optimizer, Schedule schedule, ParameterGroups groups);

  // Feeds consecutive runs of a gradient to the pieces they fall into.
  class Cursor;

  const std::unique_ptr<Optimizer> optimizer_;
  const Schedule schedule_;
  const ParameterGroups groups_;
  std::vector<std::vector<Piece>> pieces_;  // by block id
};

}  // namespace torchps
