#include "server/block_updater.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/memory/memory.h"
#include "proto/parameter_groups.h"

namespace torchps {

// Where in a block the next elements of a gradient go, and with which hyperparameters.
class BlockUpdater::Cursor {
 public:
  Cursor(const BlockUpdater& updater, Block* block, double rate_factor, double share)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex)
      : updater_(updater),
        block_(block),
        share_(static_cast<float>(share * rate_factor)),
        rate_factor_(updater.schedule_.Factor(block->version) * rate_factor) {
    parameters_.step = block->version + 1;
    UseGroup();
  }

  void Consume(absl::Span<const float> run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block_->mutex) {
    if (block_->range.averaged) {
      float* const values = block_->values.data() + position_;
      for (size_t i = 0; i < run.size(); ++i) values[i] += share_ * (run[i] - values[i]);
      position_ += run.size();
      return;
    }
    while (!run.empty()) {
      const std::vector<Piece>& pieces = updater_.pieces_[block_->range.id];
      if (position_ == pieces[piece_].end) {
        ++piece_;
        UseGroup();
      }
      const int64_t count = std::min<int64_t>(run.size(), pieces[piece_].end - position_);
      slots_.clear();
      for (std::vector<float>& slot : block_->slots) slots_.push_back(slot.data() + position_);
      updater_.optimizer_->Apply(parameters_, block_->values.data() + position_,
                                 absl::MakeConstSpan(slots_), run.data(), count);
      position_ += count;
      run.remove_prefix(count);
    }
  }

 private:
  void UseGroup() {
    if (block_->range.averaged) return;
    const GroupHyperparameters& group =
        updater_.groups_.Of(updater_.pieces_[block_->range.id][piece_].group);
    parameters_.learning_rate = group.learning_rate * rate_factor_;
    parameters_.weight_decay = group.weight_decay;
  }

  const BlockUpdater& updater_;
  Block* const block_;
  const float share_;
  const double rate_factor_;
  int64_t position_ = 0;
  size_t piece_ = 0;
  ApplyParameters parameters_;
  absl::InlinedVector<float*, 4> slots_;
};

BlockUpdater::BlockUpdater(std::unique_ptr<Optimizer> optimizer, Schedule schedule,
                           ParameterGroups groups)
    : optimizer_(std::move(optimizer)),
      schedule_(std::move(schedule)),
      groups_(std::move(groups)) {}

absl::StatusOr<std::unique_ptr<BlockUpdater>> BlockUpdater::Create(const OptimizerSpec& optimizer,
                                                                   const ModelLayout& layout,
                                                                   const BlockMap& map) {
  const absl::Status groups = CheckGroups(optimizer, layout);
  if (!groups.ok()) return groups;
  absl::StatusOr<std::unique_ptr<Optimizer>> made = MakeOptimizer(optimizer);
  if (!made.ok()) return made.status();
  absl::StatusOr<Schedule> schedule = Schedule::Create(optimizer.schedule());
  if (!schedule.ok()) return schedule.status();
  auto updater = absl::WrapUnique(
      new BlockUpdater(*std::move(made), *std::move(schedule), ParameterGroups(optimizer)));

  updater->pieces_.resize(map.blocks().size());
  auto segment = layout.segments().begin();
  for (const BlockRange& block : map.blocks()) {
    if (block.averaged) break;
    const int64_t block_end = block.offset + block.length;
    std::vector<Piece>& pieces = updater->pieces_[block.id];
    for (int64_t position = block.offset; position < block_end;) {
      while (segment->offset + segment->length <= position) ++segment;
      const int64_t end = std::min(block_end, segment->offset + segment->length);
      if (!pieces.empty() && pieces.back().group == segment->group) {
        pieces.back().end = end - block.offset;
      } else {
        pieces.push_back({position - block.offset, end - block.offset, segment->group});
      }
      position = end;
    }
  }
  return updater;
}

void BlockUpdater::Allocate(Block* block) const {
  block->values.assign(block->range.length, 0.0f);
  if (block->range.averaged) return;
  block->slots.assign(optimizer_->slots(), std::vector<float>(block->range.length, 0.0f));
  std::vector<float*> slots;
  for (std::vector<float>& slot : block->slots) slots.push_back(slot.data());
  optimizer_->InitializeSlots(absl::MakeConstSpan(slots), block->range.length);
}

void BlockUpdater::Apply(Block* block, const FramePayload& payload, double rate_factor,
                         double share) const {
  Cursor cursor(*this, block, rate_factor, share);
  payload.ForEachRun([&](int64_t, absl::Span<const float> run)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { cursor.Consume(run); });
  ++block->version;
}

void BlockUpdater::Apply(Block* block, absl::Span<const float> gradient, double rate_factor,
                         double share) const {
  Cursor cursor(*this, block, rate_factor, share);
  cursor.Consume(gradient);
  ++block->version;
}

}  // namespace torchps
