#pragma once

#include <cstdint>

#include "torchps/worker/gradient/sum_order.h"
#include "torchps/worker/kernels/kernel_shapes.h"

// Kernels that compute a gradient's norm in the order of torchps/worker/gradient/sum_order.h, and
// clip the gradient. Compiled by NVRTC for the GPU, and by a test for the host.

namespace torchps {

// Each warp sums one run (SumOrder). After lane k has added lane k + 16, only lanes 0 to 15 are
// used; after it has added lane k + 8, only lanes 0 to 7; and so on.
template <typename Number>
__device__ inline void SumRunOfWarp(const Number* __restrict__ numbers, int64_t n,
                                    double* __restrict__ sums) {
  constexpr int kRows = SumOrder::kRun / SumOrder::kLanes;
  const int lane = static_cast<int>(threadIdx.x) % SumOrder::kLanes;
  const int64_t run =
      static_cast<int64_t>(blockIdx.x) * kBlockWarps + static_cast<int>(threadIdx.x) / kWarpThreads;
  if (run >= SumOrder::Runs(n)) return;
  const int64_t begin = run * SumOrder::kRun;
  double sum = 0;
  if (begin + SumOrder::kRun <= n) {
    // Issues all loads before the first value is needed.
    Number row[kRows];
    for (int i = 0; i < kRows; ++i) row[i] = numbers[begin + i * SumOrder::kLanes + lane];
    for (int i = 0; i < kRows; ++i) sum += SumOrder::Term(row[i]);
  } else {
    for (int64_t i = begin + lane; i < n; i += SumOrder::kLanes) sum += SumOrder::Term(numbers[i]);
  }
  for (int half = SumOrder::kLanes / 2; half > 0; half /= 2) {
    sum += __shfl_down_sync(0xffffffffu, sum, half);
  }
  if (lane == 0) sums[run] = sum;
}

extern "C" __global__ void TpsSumElements(const float* elements, int64_t n, double* sums) {
  SumRunOfWarp(elements, n, sums);
}

extern "C" __global__ void TpsSumSums(const double* numbers, int64_t n, double* sums) {
  SumRunOfWarp(numbers, n, sums);
}

// `sum` is the sum of squares. Runs one thread block, with one active thread.
extern "C" __global__ void TpsJudge(const double* sum, double clip_norm, GradientVerdict* verdict) {
  if (threadIdx.x != 0) return;
  constexpr double kLargest = 0x1.fffffffffffffp+1023;
  const double norm = sqrt(*sum);
  // False for NaN.
  const bool finite = norm <= kLargest;
  const bool clips = finite && clip_norm > 0 && norm > clip_norm;
  verdict->norm = norm;
  verdict->factor = clips ? ClipFactor(norm, clip_norm) : 1.0f;
  verdict->finite = finite ? 1 : 0;
}

extern "C" __global__ void TpsScale(float* elements, int64_t n, const GradientVerdict* verdict) {
  const float factor = verdict->factor;
  if (factor == 1.0f) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x;
  for (int k = 0; k < kThreadElements; ++k) {
    const int64_t i = begin + k * kBlockThreads;
    if (i < n) elements[i] *= factor;
  }
}

}  // namespace torchps
