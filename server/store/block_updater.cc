#include "server/store/block_updater.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/memory/memory.h"
#include "job/parameter_groups.h"
#include "server/optimizer/span_math.h"

namespace torchps {

// Where in a block the next elements of a gradient go, and with which hyperparameters. Holds
// pointers into the block, so it lives no longer than the lock under which it was made.
class BlockUpdater::Cursor {
 public:
  Cursor(const BlockUpdater& updater, Block* block, double rate_factor, double share)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex)
      : optimizer_(*updater.optimizer_),
        groups_(updater.groups_),
        pieces_(updater.pieces_[block->range.id]),
        averaged_(block->range.averaged),
        share_(static_cast<float>(share * rate_factor)),
        rate_factor_(updater.schedule_.Factor(block->version) * rate_factor),
        values_(block->values.data()) {
    for (std::vector<float>& slot : block->slots) slots_.push_back(slot.data());
    parameters_.step = block->version + 1;
    if (!averaged_) UseGroup();
  }

  void Consume(absl::Span<const float> run) {
    if (averaged_) {
      MoveTowards(run.data(), share_, absl::MakeSpan(values_, run.size()));
      values_ += run.size();
      return;
    }
    while (!run.empty()) {
      if (position_ == pieces_[piece_].end) {
        ++piece_;
        UseGroup();
      }
      const int64_t count = std::min<int64_t>(run.size(), pieces_[piece_].end - position_);
      optimizer_.Apply(parameters_, values_, absl::MakeConstSpan(slots_), run.data(), count);
      position_ += count;
      values_ += count;
      for (float*& slot : slots_) slot += count;
      run.remove_prefix(count);
    }
  }

 private:
  void UseGroup() {
    const GroupHyperparameters& group = groups_.Of(pieces_[piece_].group);
    parameters_.learning_rate = group.learning_rate * rate_factor_;
    parameters_.weight_decay = group.weight_decay;
  }

  const Optimizer& optimizer_;
  const ParameterGroups& groups_;
  const std::vector<Piece>& pieces_;
  const bool averaged_;
  const float share_;
  const double rate_factor_;
  // Where the next element goes.
  float* values_;
  absl::InlinedVector<float*, 4> slots_;
  int64_t position_ = 0;
  size_t piece_ = 0;
  ApplyParameters parameters_;
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

int64_t BlockUpdater::StateBytes(const BlockRange& range) const {
  const int64_t arrays = 1 + (range.averaged ? 0 : optimizer_->slots());
  return arrays * range.length * static_cast<int64_t>(sizeof(float));
}

void BlockUpdater::Allocate(Block* block) const {
  if (block->range.averaged) return;
  block->slots.assign(optimizer_->slots(), std::vector<float>(block->range.length, 0.0f));
  std::vector<float*> slots;
  for (std::vector<float>& slot : block->slots) slots.push_back(slot.data());
  optimizer_->InitializeSlots(absl::MakeConstSpan(slots), block->range.length);
}

void BlockUpdater::Apply(Block* block, const FramePayload& payload, double rate_factor,
                         double share) const {
  const BlockChange change(block);
  Cursor cursor(*this, block, rate_factor, share);
  payload.ForEachRun(block->range.length,
                     [&](int64_t, absl::Span<const float> run) { cursor.Consume(run); });
  ++block->version;
}

void BlockUpdater::Apply(Block* block, absl::Span<const float> gradient, double rate_factor,
                         double share) const {
  const BlockChange change(block);
  Cursor cursor(*this, block, rate_factor, share);
  cursor.Consume(gradient);
  ++block->version;
}

}  // namespace torchps
