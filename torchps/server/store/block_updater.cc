#include "torchps/server/store/block_updater.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/memory/memory.h"
#include "torchps/common/missed_steps.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/server/optimizer/elementwise.h"

namespace torchps {

namespace {

// Updates between two checks that a block is finite. After a step, with the block in the cache, a
// check takes 0.3 to 0.8 of the step's time (AVX2, blocks of 1 MiB), so about 1 % overall. Checks
// inside the optimizer's loops would cost 3 to 13 %.
constexpr Version kLookEvery = 64;

}  // namespace

// Position in a block while a gradient is applied, with the current hyperparameters. Points into
// the block, so it must not outlive the caller's lock on the block.
class BlockUpdater::Cursor {
 public:
  Cursor(const BlockUpdater& updater, const std::vector<Piece>& pieces, Block* block,
         const GradientTerms& terms) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex)
      : optimizer_(*updater.optimizer_),
        groups_(updater.groups_),
        pieces_(pieces),
        averaged_(block->range.averaged),
        // At most 1, even if the push has more samples than a whole step.
        share_(std::min(
            1.0f, static_cast<float>(terms.share * terms.rate_factor * terms.gradient_factor))),
        gradient_factor_(static_cast<float>(terms.gradient_factor)),
        rate_factor_(updater.schedule_.Factor(block->version, terms.progress) * terms.rate_factor),
        step_(block->version + 1),
        values_(block->values.data()) {
    for (std::vector<float>& slot : block->slots) slots_.push_back(slot.data());
    if (!averaged_) UsePiece();
  }

  void Consume(absl::Span<const float> run) {
    if (averaged_) {
      MoveTowards(run.data(), share_, absl::MakeSpan(values_, run.size()));
      values_ += run.size();
      return;
    }
    if (gradient_factor_ == 1.0f) return ConsumeGradient(run);
    // Scales a copy, because the gradient is borrowed.
    float weighed[kWeighedAtOnce];
    while (!run.empty()) {
      const size_t count = std::min(run.size(), kWeighedAtOnce);
      std::memcpy(weighed, run.data(), count * sizeof(float));
      Scale(gradient_factor_, absl::MakeSpan(weighed, count));
      ConsumeGradient(absl::MakeConstSpan(weighed, count));
      run.remove_prefix(count);
    }
  }

 private:
  // 4 KiB, which fits in the L1 cache.
  static constexpr size_t kWeighedAtOnce = 1024;

  void ConsumeGradient(absl::Span<const float> run) {
    while (!run.empty()) {
      if (position_ == pieces_[piece_].end) {
        ++piece_;
        UsePiece();
      }
      const int64_t count = std::min<int64_t>(run.size(), pieces_[piece_].end - position_);
      if (!pieces_[piece_].absent) {
        optimizer_.Apply(parameters_, values_, absl::MakeConstSpan(slots_), run.data(), count);
      }
      position_ += count;
      values_ += count;
      for (float*& slot : slots_) slot += count;
      run.remove_prefix(count);
    }
  }

  void UsePiece() {
    const GroupHyperparameters& group = groups_.Of(pieces_[piece_].group);
    parameters_.step = step_ - pieces_[piece_].missed;
    parameters_.learning_rate = group.learning_rate * rate_factor_;
    parameters_.weight_decay = group.weight_decay;
  }

  const Optimizer& optimizer_;
  const ParameterGroups& groups_;
  const std::vector<Piece>& pieces_;
  const bool averaged_;
  const float share_;
  const float gradient_factor_;
  const double rate_factor_;
  const Version step_;
  // Where the next element is written.
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
                                                                   const BlockMap& map,
                                                                   int workers) {
  const absl::Status groups = CheckGroups(optimizer, layout);
  if (!groups.ok()) return groups;
  absl::StatusOr<std::unique_ptr<Optimizer>> made =
      MakeOptimizer(optimizer, BestInstructionSet(), workers);
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

std::vector<BlockUpdater::Piece> BlockUpdater::CutPieces(
    const Block& block, absl::Span<const ElementRun> absent) const {
  const absl::Span<const MissedRun> missed = block.missed.runs();
  size_t next_absent = 0;
  size_t next_missed = 0;
  std::vector<Piece> cut;
  for (const Piece& piece : pieces_[block.range.id]) {
    for (int64_t position = piece.begin; position < piece.end;) {
      while (next_absent < absent.size() && absent[next_absent].end <= position) ++next_absent;
      while (next_missed < missed.size() && missed[next_missed].end <= position) ++next_missed;
      Piece part = piece;
      part.begin = position;
      if (next_absent < absent.size()) {
        const ElementRun& run = absent[next_absent];
        part.absent = run.begin <= position;
        part.end = std::min(part.end, part.absent ? run.end : run.begin);
      }
      if (next_missed < missed.size()) {
        const MissedRun& run = missed[next_missed];
        const bool has_missed = run.begin <= position;
        if (has_missed) part.missed = run.steps;
        part.end = std::min(part.end, has_missed ? run.end : run.begin);
      }
      cut.push_back(part);
      position = part.end;
    }
  }
  return cut;
}

template <typename Feed>
void BlockUpdater::ApplyTo(Block* block, const GradientTerms& terms,
                           absl::Span<const ElementRun> absent, Feed feed) const {
  const BlockChange change(block);
  if (absent.empty() && block->missed.empty()) {
    feed(Cursor(*this, pieces_[block->range.id], block, terms));
  } else {
    if (!CoversAll(absent, block->range.length)) {
      const std::vector<Piece> pieces = CutPieces(*block, absent);
      feed(Cursor(*this, pieces, block, terms));
    }
    block->missed.Add(absent);
  }
  ++block->version;
  // Because of the block's id, blocks at the same version are checked in different updates.
  if ((block->version + block->range.id) % kLookEvery == 0) block->LookWhetherFinite();
}

void BlockUpdater::Apply(Block* block, const FramePayload& payload, const GradientTerms& terms,
                         absl::Span<const ElementRun> absent) const {
  ApplyTo(block, terms, absent, [&](Cursor cursor) {
    payload.ForEachRun(block->range.length,
                       [&](int64_t, absl::Span<const float> run) { cursor.Consume(run); });
  });
}

void BlockUpdater::Apply(Block* block, absl::Span<const float> gradient, const GradientTerms& terms,
                         absl::Span<const ElementRun> absent) const {
  ApplyTo(block, terms, absent, [&](Cursor cursor) { cursor.Consume(gradient); });
}

}  // namespace torchps
