#include "torchps/worker/device/gradient_outbox.h"

#include <optional>
#include <utility>

#include "torchps/common/check.h"

namespace torchps {

GradientOutbox::GradientOutbox(const Options& options)
    : options_(options),
      shares_(*options.block_map, options.least_copy_bytes),
      trained_size_(static_cast<int64_t>(options.gradients.size())) {
  for (const absl::Span<float> buffer : options_.buffers) {
    TPS_CHECK(buffer.size() == options_.gradients.size() + options_.averaged.size(),
              "a buffer of another length than the layout's");
  }
  for (const absl::Span<float> verdicts : options_.host_verdicts) {
    TPS_CHECK(verdicts.size() == (options_.look == nullptr ? 0 : options_.look->verdicts().size()),
              "room for another number of verdicts than the look has");
  }
}

GradientOutbox::~GradientOutbox() { Drop(); }

absl::Span<float> GradientOutbox::gradients() const {
  return options_.buffers[current_].first(trained_size_);
}

absl::Span<const float> GradientOutbox::averaged() const {
  return options_.buffers[current_].subspan(trained_size_);
}

void GradientOutbox::BeginStep() {
  MutexLock lock(&mutex_);
  TPS_CHECK(!in_step_, "a step was begun before the last one was finished");
  // Switches buffers only if a push uses the current buffer.
  if (is_open_) current_ = 1 - current_;
  in_step_ = true;
  is_open_ = false;
  final_.Begin();
}

void GradientOutbox::BlockFinal(BlockId block) {
  std::optional<BlockRun> share;
  {
    MutexLock lock(&mutex_);
    if (!in_step_ || !status_.ok()) return;
    share = final_.Add(block);
  }
  if (share.has_value()) CopyDown(*share, Told::kOnceDown);
}

void GradientOutbox::CopyDown(BlockRun blocks, Told told) {
  const absl::StatusOr<DeviceLink::Mark> computed = options_.link->AfterCompute();
  if (!computed.ok()) return Keep(computed.status());
  DeviceLink::Done done = [this, blocks, told](const absl::Status& status) {
    OnDown(told == Told::kOnceDown ? blocks : BlockRun(), status);
  };
  const bool looks =
      options_.look != nullptr && !options_.block_map->blocks()[blocks.begin].averaged;
  if (!looks) return CopyElementsDown(*computed, blocks, std::move(done));
  Keep(options_.link->InDowns(*computed, [look = options_.look, blocks] {
    absl::Status status;
    for (BlockId block = blocks.begin; block < blocks.end; ++block) {
      if (status.ok()) status = look->Look(block);
    }
    return status;
  }));
  CopyElementsDown(*computed, blocks, [this](const absl::Status& status) { Keep(status); });
  const ElementRun verdicts = FiniteCheck::GetVerdicts(blocks);
  const int64_t length = verdicts.end - verdicts.begin;
  Keep(options_.link->Down(
      /*after=*/nullptr, options_.look->verdicts().subspan(verdicts.begin, length),
      options_.host_verdicts[current_].subspan(verdicts.begin, length), std::move(done)));
}

void GradientOutbox::CopyElementsDown(const DeviceLink::Mark& computed, BlockRun blocks,
                                      DeviceLink::Done done) {
  const ElementRun elements = GetElements(*options_.block_map, blocks);
  const int64_t length = elements.end - elements.begin;
  const absl::Span<const float> device =
      elements.begin < trained_size_
          ? options_.gradients.subspan(elements.begin, length)
          : options_.averaged.subspan(elements.begin - trained_size_, length);
  Keep(options_.link->Down(computed, device,
                           options_.buffers[current_].subspan(elements.begin, length),
                           std::move(done)));
}

void GradientOutbox::OnDown(BlockRun blocks, const absl::Status& status) {
  if (!status.ok()) return Keep(status);
  OnBlock tell;
  {
    MutexLock lock(&mutex_);
    if (!is_open_) {
      held_.push_back(blocks);
      return;
    }
    tell = tell_;
  }
  for (BlockId block = blocks.begin; block < blocks.end; ++block) tell(block);
}

void GradientOutbox::Open(OnBlock tell) {
  std::vector<BlockRun> held;
  {
    MutexLock lock(&mutex_);
    TPS_CHECK(in_step_ && !is_open_, "a push has begun twice, or outside of a step");
    is_open_ = true;
    tell_ = tell;
    held = std::exchange(held_, {});
  }
  for (const BlockRun& blocks : held) {
    for (BlockId block = blocks.begin; block < blocks.end; ++block) tell(block);
  }
}

absl::Status GradientOutbox::Finish() {
  std::vector<BlockRun> left;
  {
    MutexLock lock(&mutex_);
    TPS_CHECK(in_step_, "there is no step to finish");
    if (status_.ok()) {
      left = final_.LeftOfTrained();
      for (const BlockRun& run : final_.LeftOfAveraged()) left.push_back(run);
    }
  }
  for (const BlockRun& blocks : left) CopyDown(blocks, Told::kNever);
  return EndStep();
}

void GradientOutbox::Drop() { EndStep().IgnoreError(); }

absl::Status GradientOutbox::EndStep() {
  options_.link->AwaitDowns();
  MutexLock lock(&mutex_);
  in_step_ = false;
  tell_ = nullptr;
  held_.clear();
  return status_;
}

void GradientOutbox::Keep(const absl::Status& error) {
  MutexLock lock(&mutex_);
  status_.Update(error);
}

}  // namespace torchps
