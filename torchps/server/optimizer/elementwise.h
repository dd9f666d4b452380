#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/common/cpu/streaming_copy.h"

namespace torchps {

// Element-wise operations on blocks. As with ElementLoop below, they are vectorized, give the same
// bits on each instruction set, and treat denormals as zero. `terms` and `targets` point to as many
// floats as the span has. They may be at any byte address, but must not overlap the span.

// sums += factor * terms.
void AddScaled(const float* terms, float factor, absl::Span<float> sums,
               InstructionSet set = BestInstructionSet());

// values *= factor.
void Scale(float factor, absl::Span<float> values, InstructionSet set = BestInstructionSet());

// values += share * (targets - values).
void MoveTowards(const float* targets, float share, absl::Span<float> values,
                 InstructionSet set = BestInstructionSet());

// Prefetches arrays in strips of 8 cache lines. The processor's own prefetching falls behind when a
// loop reads several arrays in parallel. Prefetching 2 KiB ahead makes a pass over arrays outside
// the cache 10 to 20 % faster (bench/apply_kernels_benchmark.cc).
class Strip {
 public:
  static constexpr int64_t kElements = 128;

  [[gnu::always_inline]] static void PrefetchAhead(const float* strip) {
    // An integer, because a pointer far beyond the end of the array would be undefined. Prefetching
    // such an address is harmless.
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(strip) + kAheadBytes;
    for (size_t byte = 0; byte < kElements * sizeof(float); byte += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + byte));
    }
  }

 private:
  static constexpr uintptr_t kAheadBytes = 2048;
};

// Calls element(gradient[i], values[i], slots[i]...) for n elements. ForEachElement runs this loop
// vectorized for the instruction set `set`. `Element` is a small struct with the constants of one
// step. The call operator is marked [[gnu::always_inline]]. It receives the gradient by value and
// the other arguments by reference.
//
// The arrays must not overlap; `gradient` may be at any byte address. Compile with -O3
// -fno-math-errno -fno-trapping-math -ffp-contract=off. The loop is then vectorized, and each
// element gets the same bits on each instruction set and at each position in the array. Denormals
// count as zero (torchps/common/cpu/cpu_flags.h).
template <typename Element>
class ElementLoop {
 public:
  template <typename... Slots>
  [[gnu::always_inline]] static void Run(Element element, int64_t n,
                                         const float* __restrict gradient_at_any_address,
                                         float* __restrict values, Slots* __restrict... slots) {
    const UnalignedFloat* const gradient = AtAnyAddress(gradient_at_any_address);
    const int64_t whole_strips = n - n % Strip::kElements;
    for (int64_t i = 0; i < whole_strips; i += Strip::kElements) {
      Strip::PrefetchAhead(gradient_at_any_address + i);
      Strip::PrefetchAhead(values + i);
      (Strip::PrefetchAhead(slots + i), ...);
      for (int64_t j = i; j < i + Strip::kElements; ++j) {
        element(gradient[j], values[j], slots[j]...);
      }
    }
    for (int64_t i = whole_strips; i < n; ++i) element(gradient[i], values[i], slots[i]...);
  }
};

template <typename Element, typename... Slots>
void ForEachElement(InstructionSet set, const Element& element, int64_t n, const float* gradient,
                    float* values, Slots*... slots) {
  const FlushDenormals flush;
  RunVectorised<ElementLoop<Element>>(set, element, n, gradient, values, slots...);
}

}  // namespace torchps
