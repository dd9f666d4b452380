#pragma once

#include <cstdint>

#include "torchps/common/host_device.h"

namespace torchps {

// Defines the order in which the squares of a gradient are summed. Rounding depends on the order,
// and the host and a GPU must compute the same norm to the last bit.
//
//   elements      | run of 512 elements           | run of 512 | ...
//   a run's sum     1. Lane k, from 0 to 31, starts at 0 and adds the squares of the run's elements
//                      k, k + 32, k + 64 ...
//                   2. Lane k adds lane k + 16, then lanes k + 8, k + 4, k + 2 and k + 1. Lane 0
//                      now has the run's sum.
//   all sums        512 sums form a run again. They are added in the same way, without squaring,
//                   until one sum is left.
//
// There are 32 lanes because a GPU warp has 32 threads. On a CPU, 32 parallel sums hide the latency
// of an addition.
struct SumOrder {
  static constexpr int kLanes = 32;
  static constexpr int kRun = 512;

  TPS_HOST_DEVICE static int64_t Runs(int64_t numbers) { return (numbers + kRun - 1) / kRun; }

  // The product is exact, so a fused multiply-add returns the same sum.
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
