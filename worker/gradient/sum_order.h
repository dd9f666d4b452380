#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace torchps {

// Defines the order in which the squares of a gradient are summed. Rounding depends on the order,
// and the host and a GPU must compute the same norm to the last bit.
//
//   elements      | run of 512 elements           | run of 512 | ...
//   a run's sum     lane k of 32 adds elements k, k + 32, k + 64 ... of the run, from 0;
//                   then lane k adds lane k + 16, and k + 8, + 4, + 2, + 1: lane 0 has the sum
//   all sums        the same, as if they were the elements, until one is left
//
// Each GPU warp consists of 32 lanes. On a CPU, 32 parallel sums hide the latency of an addition.
struct SumOrder {
  static constexpr int kLanes = 32;
  static constexpr int kRun = 512;

  TPS_HOST_DEVICE static int64_t Runs(int64_t numbers) { return (numbers + kRun - 1) / kRun; }

  // Exact, so fusing it with the addition makes no difference.
  TPS_HOST_DEVICE static double Term(float element) {
    return static_cast<double>(element) * static_cast<double>(element);
  }
  TPS_HOST_DEVICE static double Term(double sum) { return sum; }
};

// Returns the factor that clips a gradient of norm `norm` to `clip_norm`, as
// torch.nn.utils.clip_grad_norm_ does. REQUIRES: `norm` is above `clip_norm`.
TPS_HOST_DEVICE inline float ClipFactor(double norm, double clip_norm) {
  return static_cast<float>(clip_norm / (norm + 1e-6));
}

}  // namespace torchps
