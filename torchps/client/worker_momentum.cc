#include "torchps/client/worker_momentum.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "torchps/common/check.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/job/job_spec.h"
#include "torchps/job/optimizer_fields.h"

namespace torchps {
namespace {

struct MomentumLoop {
  [[gnu::always_inline]] static void Run(float factor, float decay, const float* __restrict values,
                                         float* __restrict momentum, float* __restrict gradient,
                                         int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float g = gradient[i] + decay * values[i];
      const float v = factor * momentum[i] + g;
      momentum[i] = v;
      gradient[i] = g + factor * v;
    }
  }
};

}  // namespace

std::unique_ptr<WorkerMomentum> WorkerMomentum::Create(const OptimizerSpec& optimizer,
                                                       const ModelLayout& layout,
                                                       const BlockMap& block_map) {
  if (!MomentumInWorkers(optimizer)) return nullptr;
  return absl::WrapUnique(new WorkerMomentum(optimizer, layout, block_map));
}

WorkerMomentum::WorkerMomentum(const OptimizerSpec& optimizer, const ModelLayout& layout,
                               const BlockMap& block_map)
    : blocks_(block_map.blocks()),
      factor_(static_cast<float>(optimizer.sgd().momentum())),
      momentum_(layout.trained_size()) {
  for (const Segment& segment : layout.segments()) {
    if (segment.averaged) break;
    const auto decay = static_cast<float>(GetWeightDecay(optimizer, segment.group));
    if (pieces_.empty() || pieces_.back().decay != decay) {
      pieces_.push_back({segment.offset, segment.offset, decay});
    }
    pieces_.back().end = segment.offset + segment.length;
  }
}

bool WorkerMomentum::Apply(BlockId block, absl::Span<const float> values,
                           absl::Span<const ElementRun> absent, absl::Span<float> gradient) {
  const BlockRange& range = blocks_[block];
  TPS_CHECK(!range.averaged, "averaged values have no momentum");
  TPS_CHECK(
      static_cast<int64_t>(gradient.size()) == range.length && values.size() == momentum_.size(),
      "a gradient of another length than its block, or other values than the model's");
  // If a gradient stays zero, v decays towards zero. Denormal numbers would be slow, so they are
  // flushed.
  const FlushDenormals flush;
  auto piece = std::upper_bound(
      pieces_.begin(), pieces_.end(), range.offset,
      [](int64_t offset, const Piece& candidate) { return offset < candidate.end; });
  auto hole = absent.begin();
  const int64_t end = range.offset + range.length;
  for (int64_t position = range.offset; position < end;) {
    while (piece->end <= position) ++piece;
    int64_t next = std::min(end, piece->end);
    if (hole != absent.end()) {
      if (range.offset + hole->begin <= position) {
        position = range.offset + hole->end;
        ++hole;
        continue;
      }
      next = std::min(next, range.offset + hole->begin);
    }
    RunVectorised<MomentumLoop>(set_, factor_, piece->decay, values.data() + position,
                                momentum_.data() + position,
                                gradient.data() + (position - range.offset), next - position);
    position = next;
  }
  // `gradient` now holds u. A non-finite v makes u non-finite, so one check is enough.
  if (FirstNonFinite(gradient) < 0) return true;
  std::fill_n(momentum_.begin() + range.offset, range.length, 0.0f);
  return false;
}

}  // namespace torchps
