#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "worker/device/copy_shares.h"
#include "worker/kernels/kernel_shapes.h"

namespace torchps {

// Looks at a gradient's blocks where a device has them, and finds what ScanGradient()
// (worker/gradient/gradient_scan.h) finds on the host.
//
// Calls give the device work, in the order that the calling thread has made current, and do not
// wait for it. One call at a time. May throw what torch throws.
class FiniteCheck {
 public:
  virtual ~FiniteCheck() = default;

  // What was found of each trained block, on the device: GradientVerdicts without a factor, one
  // behind the other.
  virtual absl::Span<const float> verdicts() const = 0;
  // Looks at a trained block, and fills its verdict. INTERNAL: the device has failed.
  virtual absl::Status Look(BlockId block) = 0;

  // The verdicts of a run of trained blocks, in floats.
  static ElementRun GetVerdicts(BlockRun blocks) {
    return {blocks.begin * kVerdictFloats, blocks.end * kVerdictFloats};
  }
  // `verdicts` of all blocks, aligned for doubles.
  static bool IsFinite(absl::Span<const float> verdicts, BlockId block) {
    const float* const verdict = verdicts.data() + block * kVerdictFloats;
    return reinterpret_cast<const GradientVerdict*>(verdict)->finite != 0;
  }

  static constexpr int64_t kVerdictFloats = sizeof(GradientVerdict) / sizeof(float);
};

}  // namespace torchps
