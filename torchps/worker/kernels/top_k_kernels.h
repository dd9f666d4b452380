#pragma once

#include <cstdint>

#include "torchps/transport/encoding_elements.h"
#include "torchps/worker/kernels/kernel_shapes.h"

// Kernels for TOP_K with error feedback on one gradient block. They send the same elements as
// EncodeKeepingRest() of torchps/transport/residual_encoding.h: those above the cut, which is the
// k-th largest magnitude (TopKCut), and the first elements on the cut. Compiled by NVRTC for the
// GPU, and by a test for the host. If `verdict` reports a gradient that is not finite, the kernels
// do not write the residual or the entries.
//
//   TpsTopKBegin               clears the counts and the cut
//   TpsTopKCount, TpsTopKPick  for each digit: count the elements, pick the digit of the cut
//   TpsTopKCountChunks         counts elements above the cut and on the cut in each chunk
//   TpsTopKOffsets             sums these counts over the preceding chunks
//   TpsTopKWrite               writes the entries by ascending index
//   TpsTakeBackTopK            adds the entries back to the residual

namespace torchps {

// Runs one thread block.
extern "C" __global__ void TpsTopKBegin(uint32_t k, TopKCut* cut, uint32_t* counts) {
  for (int i = static_cast<int>(threadIdx.x); i < kTopKDigits * kTopKLargestDigit;
       i += kBlockThreads) {
    counts[i] = 0;
  }
  if (threadIdx.x == 0) *cut = {0, k};
}

// The digit consists of the `digit_bits` bits above the lowest `low_bits` bits of a magnitude. For
// each value of the digit, counts the elements with this value, if their higher bits equal those of
// the cut. First adds `gradient`, if not null, to `residual`. Runs any number of thread blocks.
extern "C" __global__ void TpsTopKCount(const float* __restrict__ gradient,
                                        float* __restrict__ residual, int64_t n, int low_bits,
                                        int digit_bits, const GradientVerdict* __restrict__ verdict,
                                        const TopKCut* __restrict__ cut,
                                        uint32_t* __restrict__ counts) {
  if (IsLeftOut(verdict)) return;
  __shared__ uint32_t of_block[kTopKLargestDigit];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kTopKLargestDigit; i += kBlockThreads) of_block[i] = 0;
  __syncthreads();
  const int known_from = low_bits + digit_bits;
  const uint32_t known = cut->magnitude >> known_from;
  const uint32_t mask = (1u << digit_bits) - 1;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kBlockThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + thread; i < n; i += stride) {
    float element = residual[i];
    if (gradient != nullptr) {
      element += gradient[i];
      residual[i] = element;
    }
    const uint32_t magnitude = GetMagnitude(element);
    if (magnitude >> known_from == known) atomicAdd(&of_block[magnitude >> low_bits & mask], 1u);
  }
  __syncthreads();
  for (int i = thread; i < kTopKLargestDigit; i += kBlockThreads) {
    if (of_block[i] != 0) atomicAdd(&counts[i], of_block[i]);
  }
}

// Finds the cut's digit: goes down from the highest value of the digit until the counts add up to
// the elements to send. Searches sums of neighbouring counts first. Runs one thread block.
extern "C" __global__ void TpsTopKPick(int low_bits, int digit_bits, const GradientVerdict* verdict,
                                       TopKCut* cut, const uint32_t* counts) {
  // TpsTopKCount did not count.
  if (IsLeftOut(verdict)) return;
  __shared__ uint32_t sums[kBlockThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int each = (1 << digit_bits) / kBlockThreads;
  uint32_t sum = 0;
  for (int i = 0; i < each; ++i) sum += counts[thread * each + i];
  sums[thread] = sum;
  __syncthreads();
  if (thread != 0) return;
  uint32_t at = cut->at;
  int group = kBlockThreads - 1;
  while (sums[group] < at) at -= sums[group--];
  int digit = group * each + each - 1;
  while (counts[digit] < at) at -= counts[digit--];
  *cut = {cut->magnitude | static_cast<uint32_t>(digit) << low_bits, at};
}

// Counts the elements above the cut and on the cut. Each thread block counts one chunk.
extern "C" __global__ void TpsTopKCountChunks(const float* __restrict__ elements, int64_t n,
                                              const TopKCut* __restrict__ cut,
                                              uint32_t* __restrict__ above,
                                              uint32_t* __restrict__ equal) {
  __shared__ uint32_t above_of_block, equal_of_block;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    above_of_block = 0;
    equal_of_block = 0;
  }
  __syncthreads();
  const uint32_t magnitude = cut->magnitude;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTopKChunk;
  uint32_t own_above = 0;
  uint32_t own_equal = 0;
  for (int64_t i = begin + thread; i < begin + kTopKChunk && i < n; i += kBlockThreads) {
    const uint32_t found = GetMagnitude(elements[i]);
    own_above += found > magnitude ? 1 : 0;
    own_equal += found == magnitude ? 1 : 0;
  }
  if (own_above != 0) atomicAdd(&above_of_block, own_above);
  if (own_equal != 0) atomicAdd(&equal_of_block, own_equal);
  __syncthreads();
  if (thread != 0) return;
  above[blockIdx.x] = above_of_block;
  equal[blockIdx.x] = equal_of_block;
}

// Replaces each chunk's count by the sum over the preceding chunks. Runs one thread block; each
// thread sums a range of chunks.
extern "C" __global__ void TpsTopKOffsets(int64_t chunks, uint32_t* above, uint32_t* equal) {
  __shared__ uint32_t sums[2][kBlockThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t each = (chunks + kBlockThreads - 1) / kBlockThreads;
  const int64_t begin = thread * each;
  uint32_t* const numbers[2] = {above, equal};
  for (int which = 0; which < 2; ++which) {
    uint32_t sum = 0;
    for (int64_t i = begin; i < begin + each && i < chunks; ++i) sum += numbers[which][i];
    sums[which][thread] = sum;
  }
  __syncthreads();
  for (int which = 0; which < 2; ++which) {
    uint32_t before = 0;
    for (int i = 0; i < thread; ++i) before += sums[which][i];
    for (int64_t i = begin; i < begin + each && i < chunks; ++i) {
      const uint32_t number = numbers[which][i];
      numbers[which][i] = before;
      before += number;
    }
  }
}

// Writes the entries of one chunk and sets the sent elements to 0. The first `cut->at` elements on
// the cut are sent. So an entry's position is the number of earlier elements above the cut, plus
// the number of earlier elements on the cut that are sent. `entries` is aligned for 32-bit numbers.
extern "C" __global__ void TpsTopKWrite(float* __restrict__ elements, int64_t n,
                                        const GradientVerdict* __restrict__ verdict,
                                        const TopKCut* __restrict__ cut,
                                        const uint32_t* __restrict__ above,
                                        const uint32_t* __restrict__ equal,
                                        uint32_t* __restrict__ entries) {
  if (IsLeftOut(verdict)) return;
  // By warp: its number of elements above the cut and, shifted by 16 bits, on the cut. Both fit in
  // 16 bits.
  __shared__ uint32_t of_warps[kBlockWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const uint32_t lanes_before = (1u << thread % kWarpThreads) - 1;
  const uint32_t magnitude = cut->magnitude;
  const uint32_t at = cut->at;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTopKChunk;
  uint32_t above_before = above[blockIdx.x];
  uint32_t equal_before = equal[blockIdx.x];
  for (int64_t row = begin; row < begin + kTopKChunk && row < n; row += kBlockThreads) {
    const int64_t i = row + thread;
    const float element = i < n ? elements[i] : 0.0f;
    const uint32_t found = GetMagnitude(element);
    const bool is_above = i < n && found > magnitude;
    const bool is_equal = i < n && found == magnitude;
    const uint32_t warps_above = __ballot_sync(0xffffffffu, is_above);
    const uint32_t warps_equal = __ballot_sync(0xffffffffu, is_equal);
    if (thread % kWarpThreads == 0) {
      of_warps[warp] = static_cast<uint32_t>(__popc(warps_above) | __popc(warps_equal) << 16);
    }
    __syncthreads();
    uint32_t before = 0;
    uint32_t all = 0;
    for (int other = 0; other < kBlockWarps; ++other) {
      if (other < warp) before += of_warps[other];
      all += of_warps[other];
    }
    __syncthreads();
    const uint32_t above_here =
        above_before + (before & 0xffff) + __popc(warps_above & lanes_before);
    const uint32_t equal_here = equal_before + (before >> 16) + __popc(warps_equal & lanes_before);
    if (is_above || (is_equal && equal_here < at)) {
      const uint32_t equal_sent = equal_here < at ? equal_here : at;
      uint32_t* const entry = entries + 2 * static_cast<int64_t>(above_here + equal_sent);
      entry[0] = static_cast<uint32_t>(i);
      entry[1] = GetBits(element);
      elements[i] = 0;
    }
    above_before += all & 0xffff;
    equal_before += all >> 16;
  }
}

// Adds the k entries, which have distinct indices, to `residual`.
extern "C" __global__ void TpsTakeBackTopK(const uint32_t* __restrict__ entries, int64_t k,
                                           float* __restrict__ residual) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x;
  for (int j = 0; j < kThreadElements; ++j) {
    const int64_t i = begin + j * kBlockThreads;
    if (i >= k) break;
    residual[entries[2 * i]] += GetFloat(entries[2 * i + 1]);
  }
}

}  // namespace torchps
