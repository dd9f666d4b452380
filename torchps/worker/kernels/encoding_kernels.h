#pragma once

#include <cstdint>

#include "torchps/transport/encoding_elements.h"
#include "torchps/worker/kernels/kernel_shapes.h"

// Kernels for error feedback on one gradient block, as in EncodeKeepingRest() of
// torchps/transport/residual_encoding.h. If no server applied the block, the TakeBack kernels add
// the sent bytes back to the residual. Compiled by NVRTC for the GPU, and by a test for the host.
// If `verdict` reports a gradient that is not finite, the kernels do not write the residual or the
// bytes.

namespace torchps {

// Elements of one thread: first the sums of residual and gradient, later the parts of them that
// were not sent.
struct ThreadSums {
  float sums[kThreadElements];

  __device__ static int64_t Index(int k) {
    return static_cast<int64_t>(blockIdx.x) * kChunk + k * kBlockThreads + threadIdx.x;
  }

  // Elements beyond the end are 0, so they never determine a group's scale.
  __device__ ThreadSums(const float* __restrict__ gradient, const float* __restrict__ residual,
                        int64_t n) {
    for (int k = 0; k < kThreadElements; ++k) {
      const int64_t i = Index(k);
      sums[k] = i < n ? residual[i] + gradient[i] : 0.0f;
    }
  }
};

// REQUIRES: `bytes` is aligned for 16-bit numbers.
extern "C" __global__ void TpsKeepBfloat16(const float* __restrict__ gradient,
                                           float* __restrict__ residual, int64_t n,
                                           const GradientVerdict* __restrict__ verdict,
                                           uint8_t* __restrict__ bytes) {
  if (IsLeftOut(verdict)) return;
  uint16_t* const to = reinterpret_cast<uint16_t*>(bytes);
  ThreadSums own(gradient, residual, n);
  for (int k = 0; k < kThreadElements; ++k) {
    const int64_t i = ThreadSums::Index(k);
    if (i >= n) break;
    to[i] = static_cast<uint16_t>(Bfloat16::Take(own.sums[k]));
    residual[i] = own.sums[k];
  }
}

// Returns, to each thread of a thread block, the largest `own` of these threads.
__device__ inline uint32_t LargestOfBlock(uint32_t own) {
  __shared__ uint32_t of_warps[kBlockWarps];
  for (int half = kWarpThreads / 2; half > 0; half /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, own, half);
    own = other > own ? other : own;
  }
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % kWarpThreads == 0) of_warps[thread / kWarpThreads] = own;
  __syncthreads();
  for (const uint32_t other : of_warps) own = other > own ? other : own;
  return own;
}

// Each thread block encodes one group: the elements that share an INT8 scale. REQUIRES: `bytes` is
// aligned for floats, and so is each group.
extern "C" __global__ void TpsKeepInt8(const float* __restrict__ gradient,
                                       float* __restrict__ residual, int64_t n,
                                       const GradientVerdict* __restrict__ verdict,
                                       uint8_t* __restrict__ bytes) {
  if (IsLeftOut(verdict)) return;
  static_assert(kChunk == kInt8GroupElements, "a block has a group's scale");
  ThreadSums own(gradient, residual, n);
  uint32_t largest = 0;
  for (const float sum : own.sums) {
    const uint32_t magnitude = GetMagnitude(sum);
    largest = magnitude > largest ? magnitude : largest;
  }
  const Int8Scale group(LargestOfBlock(largest));
  uint8_t* const to = bytes + blockIdx.x * (sizeof(float) + kInt8GroupElements);
  if (threadIdx.x == 0) *reinterpret_cast<float*>(to) = group.scale();
  for (int k = 0; k < kThreadElements; ++k) {
    const int64_t i = ThreadSums::Index(k);
    if (i >= n) break;
    to[sizeof(float) + k * kBlockThreads + threadIdx.x] =
        static_cast<uint8_t>(group.Take(own.sums[k]));
    residual[i] = own.sums[k];
  }
}

// Decodes the bytes of TpsKeepBfloat16 and adds them to `residual`.
extern "C" __global__ void TpsTakeBackBfloat16(const uint8_t* __restrict__ bytes, int64_t n,
                                               float* __restrict__ residual) {
  const uint16_t* const from = reinterpret_cast<const uint16_t*>(bytes);
  for (int k = 0; k < kThreadElements; ++k) {
    const int64_t i = ThreadSums::Index(k);
    if (i >= n) break;
    residual[i] += GetFloat(Bfloat16::In(from[i]));
  }
}

// Decodes the bytes of TpsKeepInt8 and adds them to `residual`. Each thread block decodes one
// group.
extern "C" __global__ void TpsTakeBackInt8(const uint8_t* __restrict__ bytes, int64_t n,
                                           float* __restrict__ residual) {
  const uint8_t* const from = bytes + blockIdx.x * (sizeof(float) + kInt8GroupElements);
  const float scale = *reinterpret_cast<const float*>(from);
  for (int k = 0; k < kThreadElements; ++k) {
    const int64_t i = ThreadSums::Index(k);
    if (i >= n) break;
    residual[i] += Int8Scale::In(
        scale, static_cast<int8_t>(from[sizeof(float) + k * kBlockThreads + threadIdx.x]));
  }
}

}  // namespace torchps
