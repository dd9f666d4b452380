#include "tests/fault/integer_pusher.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr int64_t kTrained = IntegerRig::kTrained;
constexpr int64_t kSize = IntegerRig::kTrained + IntegerRig::kAveraged;
// On average, one in this many steps also pulls while some blocks of its gradient are still
// missing. During this pull a connection may break, and the pusher must then send blocks again
// before the other blocks are ready.
constexpr uint64_t kLongSteps = 4;

}  // namespace

IntegerPusher::IntegerPusher(const Options& options) : options_(options), values_(kSize) {
  for (int i = 0; i < 2; ++i) {
    if (options_.segment != nullptr && i < options_.segment->buffers()) {
      buffers_[i] = options_.segment->buffer(i);
    } else {
      own_buffers_[i].resize(kSize);
      buffers_[i] = absl::MakeSpan(own_buffers_[i]);
    }
  }
  if (options_.link.has_value()) {
    MakeDevice(*options_.link);
  } else {
    std::fill(buffers_[0].begin() + kTrained, buffers_[0].end(), static_cast<float>(options_.slot));
  }
}

IntegerPusher::~IntegerPusher() = default;

void IntegerPusher::MakeDevice(FakeLink::Options link) {
  computed_with_.resize(kSize);
  staging_.resize(kSize);
  gradients_.resize(kTrained);
  beside_.resize(kSize);
  random_ = link.seed;
  link.own_thread = true;
  // Copies each block separately.
  link.least_copy_bytes = 1;
  link_ = std::make_unique<FakeLink>(link);

  ValueUploader::Options inbox;
  inbox.link = link_.get();
  inbox.block_map = &options_.rig->block_map();
  inbox.staging = absl::MakeSpan(staging_);
  inbox.values = absl::MakeSpan(computed_with_);
  inbox.least_copy_bytes = link.least_copy_bytes;
  inbox_ = std::make_unique<ValueUploader>(inbox);

  GradientOutbox::Options outbox;
  outbox.link = link_.get();
  outbox.block_map = &options_.rig->block_map();
  outbox.gradients = gradients_;
  outbox.averaged = absl::MakeConstSpan(computed_with_).subspan(kTrained);
  outbox.buffers = buffers_;
  outbox.least_copy_bytes = link.least_copy_bytes;
  outbox_ = std::make_unique<GradientOutbox>(outbox);
}

absl::StatusOr<PullResult> IntegerPusher::Pull(Step clock, CachedVersions* held) {
  const auto pull = [&](std::function<void(BlockId)> on_block) {
    return options_.client->Pull(clock, /*read_only=*/false, absl::MakeSpan(values_), held,
                                 std::move(on_block));
  };
  if (!is_linked()) return pull(nullptr);
  if (absl::Status status = inbox_->Begin(values_); !status.ok()) return status;
  const auto pulled = pull([this](BlockId block) {
    inbox_->Landed(block);
#ifdef TORCHPS_TSAN
    // If a call is repeated, a block may arrive again during the block's upload. Then the block is
    // uploaded again, and the last upload overwrites the earlier ones. TSan would report the
    // overlap, so wait here.
    link_->AwaitUps().IgnoreError();
#endif
  });
  if (!pulled.ok()) return pulled;
  if (absl::Status status = inbox_->TakeOver(); !status.ok()) return status;
  if (computed_with_ != values_) {
    return absl::InternalError("the device computes with other values than the host has pulled");
  }
  return pulled;
}

absl::StatusOr<PushResult> IntegerPusher::Push(Step step) {
  if (is_linked()) return PushFromDevice(step);
  const std::vector<int> gradient = IntegerRig::Gradient(options_.slot, step);
  std::copy(gradient.begin(), gradient.end(), buffers_[0].begin());
  return options_.client->Push(step, options_.weight, buffers_[0].first(kTrained),
                               buffers_[0].subspan(kTrained));
}

absl::StatusOr<PushResult> IntegerPusher::PushFromDevice(Step step) {
  if (step_ != step) {
    outbox_->Drop();
    BeginStep(step);
  }
  step_ = 0;
  const auto push = options_.client->BeginPush(step, options_.weight, outbox_->gradients(),
                                               outbox_->averaged(), values_,
                                               /*check_finite=*/false);
  // Drop() ends the use of `push` by the callback below, and runs before `push` is destroyed.
  auto drop = absl::MakeCleanup([this] { outbox_->Drop(); });
  outbox_->Open([&push](BlockId block) { push->BlockReady(block); });
  if (UniformBelow(random_, kLongSteps) == 0) {
    const auto pulled = options_.client->Pull(step, /*read_only=*/true, absl::MakeSpan(beside_));
    if (!pulled.ok()) return pulled.status();
  }
  ComputeBlocks(to_compute_.size());
  // Simulates the forward pass, which changes averaged values.
  std::fill(computed_with_.begin() + kTrained, computed_with_.end(),
            static_cast<float>(options_.slot));
  if (absl::Status status = outbox_->Finish(); !status.ok()) return status;
  std::move(drop).Cancel();
  push->AllReady();
  BeginStep(step + 1);
  return push->Finish();
}

void IntegerPusher::BeginStep(Step step) {
  step_ = step;
  gradient_ = IntegerRig::Gradient(options_.slot, step);
  to_compute_.clear();
  for (const BlockRange& block : options_.rig->block_map().blocks()) {
    if (!block.averaged) to_compute_.push_back(block);
  }
  for (size_t i = to_compute_.size(); i > 1; --i) {
    std::swap(to_compute_[i - 1], to_compute_[UniformBelow(random_, i)]);
  }
  outbox_->BeginStep();
  ComputeBlocks(UniformBelow(random_, to_compute_.size()));
}

void IntegerPusher::ComputeBlocks(size_t count) {
  for (; count > 0; --count) {
    const BlockRange block = to_compute_.back();
    to_compute_.pop_back();
    std::copy_n(gradient_.begin() + block.offset, block.length, gradients_.begin() + block.offset);
    // Does not report one block in eight as final. Finish() copies these blocks.
    if (UniformBelow(random_, 8) > 0) outbox_->BlockFinal(block.id);
  }
}

}  // namespace torchps
