#pragma once

#include <cstdint>

#include "common/host_device.h"

namespace torchps {

// In which order the squares of a gradient are added up: rounding depends on it, and the host and a
// GPU are to find the same norm to the last bit.
//
//   elements      | run of 512 elements           | run of 512 | ...
//   a run's sum     lane k of 32 adds elements k, k + 32, k + 64 ... of the run, from 0;
//                   then lane k adds lane k + 16, and k + 8, + 4, + 2, + 1: lane 0 has the sum
//   all sums        the same, as if they were the elements, until one is left
//
// A GPU's warp has 32 lanes, and a processor's 32 sums at once hide how long one addition takes.
struct SumOrder {
  static constexpr int kLanes = 32;
  static constexpr int kRun = 512;

  TPS_HOST_DEVICE static int64_t Runs(int64_t numbers) { return (numbers + kRun - 1) / kRun; }

  // Exact, so whether it is fused with the addition makes no difference.
  TPS_HOST_DEVICE static double Term(float element) {
    return static_cast<double>(element) * static_cast<double>(element);
  }
  TPS_HOST_DEVICE static double Term(double sum) { return sum; }
};

// What a gradient of the norm `norm` is multiplied by, if that is above `clip_norm`, as
// torch.nn.utils.clip_grad_norm_ does.
TPS_HOST_DEVICE inline float ClipFactor(double norm, double clip_norm) {
  return static_cast<float>(clip_norm / (norm + 1e-6));
}

}  // namespace torchps
