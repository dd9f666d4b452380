#include "tests/fault/nemesis/nemesis_device.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr size_t kElements = size_t{NemesisJob::kBlocks} * NemesisJob::kBlockElements;
// Upper bound for a link's first failure, in operations. A step needs three operations per block.
constexpr uint64_t kLongestLife = 5000;

FakeLink::Options LinkOptions(uint64_t* random) {
  FakeLink::Options link;
  link.seed = SplitMix64(*random);
  link.fail_at = static_cast<int64_t>(UniformBelow(*random, kLongestLife));
  // Copies each block separately.
  link.least_copy_bytes = 1;
  return link;
}

GradientOutbox::Options OutboxOptions(const NemesisJob& job, FakeLink* link,
                                      const std::vector<float>& gradients,
                                      std::array<std::vector<float>, 2>* buffers) {
  GradientOutbox::Options outbox;
  outbox.link = link;
  outbox.block_map = &job.map;
  outbox.gradients = gradients;
  outbox.buffers = {absl::MakeSpan((*buffers)[0]), absl::MakeSpan((*buffers)[1])};
  outbox.least_copy_bytes = link->least_copy_bytes();
  return outbox;
}

}  // namespace

NemesisDevice::NemesisDevice(const NemesisJob* job, SlotId slot, Incarnation incarnation,
                             uint64_t seed)
    : job_(*job),
      slot_(slot),
      random_((seed << 32) ^ (incarnation * NemesisJob::kSlots + static_cast<uint64_t>(slot))),
      gradients_(kElements),
      buffers_{std::vector<float>(kElements), std::vector<float>(kElements)},
      link_(LinkOptions(&random_)),
      outbox_(OutboxOptions(job_, &link_, gradients_, &buffers_)) {}

// Completes copies that are still in progress.
NemesisDevice::~NemesisDevice() { outbox_.Drop(); }

void NemesisDevice::BeginPush(Step step) {
  if (computed_ != step) {
    outbox_.Drop();
    Compute(step);
  }
  pushed_ = outbox_.gradients();
  is_there_.assign(NemesisJob::kBlocks, false);
  was_asked_ = is_there_;
  is_ahead_ = false;
  outbox_.Open([this](BlockId block) { is_there_[block] = true; });
}

void NemesisDevice::Compute(Step step) {
  computed_ = step;
  outbox_.BeginStep();
  std::vector<BlockId> order(NemesisJob::kBlocks);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[UniformBelow(random_, i)]);
  }
  for (const BlockId block : order) {
    link_.Compute([this, step, block] {
      const std::vector<float> gradient = NemesisJob::Gradient(slot_, step);
      std::copy(gradient.begin(), gradient.end(),
                gradients_.begin() + job_.map.blocks()[block].offset);
    });
    outbox_.BlockFinal(block);
  }
}

absl::StatusOr<absl::Span<const float>> NemesisDevice::Block(BlockId block) {
  while (!is_ahead_ && !is_there_[block]) {
    if (link_.Step()) continue;
    has_failed_ = true;
    absl::Status status = outbox_.Finish();
    return status.ok() ? absl::InternalError("a block never came down") : status;
  }
  was_asked_[block] = true;
  if (!is_ahead_ && std::count(was_asked_.begin(), was_asked_.end(), false) == 0) {
    if (absl::Status status = outbox_.Finish(); !status.ok()) {
      has_failed_ = true;
      return status;
    }
    is_ahead_ = true;
    Compute(computed_ + 1);
    for (uint64_t steps = UniformBelow(random_, 40); steps > 0 && link_.Step(); --steps) {
    }
  }
  const BlockRange& range = job_.map.blocks()[block];
  return pushed_.subspan(range.offset, range.length);
}

}  // namespace torchps
