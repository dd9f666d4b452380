#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "common/types.h"
#include "worker/device/final_shares.h"
#include "worker/kernels/kernel_shapes.h"

namespace torchps {

// Checks gradient blocks on the device. Finds the same values as ScanGradient()
// (worker/gradient/gradient_scan.h) on the host.
//
// Each call queues device work on the calling thread's current stream and returns without waiting.
// Calls must not overlap. Any call may throw c10::Error.
class FiniteCheck {
 public:
  virtual ~FiniteCheck() = default;

  // Returns the verdicts of the trained blocks on the device: consecutive GradientVerdicts without
  // a factor.
  virtual absl::Span<const float> verdicts() const = 0;
  // Checks a trained block and writes the verdict. INTERNAL: the device failed.
  virtual absl::Status Look(BlockId block) = 0;

  // Returns the position of the verdicts of a run of trained blocks, in floats.
  static ElementRun GetVerdicts(BlockRun blocks) {
    return {blocks.begin * kVerdictFloats, blocks.end * kVerdictFloats};
  }
  // Returns true if the block is finite. `verdicts` covers all blocks and is aligned for doubles.
  static bool IsFinite(absl::Span<const float> verdicts, BlockId block) {
    const float* const verdict = verdicts.data() + block * kVerdictFloats;
    return reinterpret_cast<const GradientVerdict*>(verdict)->finite != 0;
  }

  static constexpr int64_t kVerdictFloats = sizeof(GradientVerdict) / sizeof(float);
};

}  // namespace torchps
