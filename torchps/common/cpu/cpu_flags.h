#pragma once

#include <xmmintrin.h>

#include <vector>

#include "absl/strings/string_view.h"

// Compiles loops over arrays once per instruction set and selects the version for the current
// machine. The loops are plain code that the compiler vectorises. Build rules that use this header
// need three flags: -O3, -fno-trapping-math (otherwise comparisons prevent vectorisation), and
// -ffp-contract=off (so that multiplications and additions are never fused). Because IEEE 754
// square roots and divisions are exactly rounded, all instruction sets then return the same bits.

#if defined(__SSE__)
#endif

namespace torchps {

enum class InstructionSet {
  kBaseline,  // available on all machines of this architecture: SSE2 on x86-64
  kAvx2,
  kAvx512,  // F, BW, DQ and VL
};

// Returns "baseline", "avx2" or "avx512".
absl::string_view InstructionSetName(InstructionSet set);

// Returns the instruction sets that this machine supports, the best one last. Thread-safe.
const std::vector<InstructionSet>& InstructionSets();
InstructionSet BestInstructionSet();

namespace instruction_set_internal {

template <typename Loop, typename... Args>
[[gnu::noinline]] auto RunBaseline(Args... args) {
  return Loop::Run(args...);
}

#if defined(__x86_64__)
template <typename Loop, typename... Args>
[[gnu::noinline, gnu::target("avx2")]] auto RunAvx2(Args... args) {
  return Loop::Run(args...);
}

template <typename Loop, typename... Args>
[[gnu::noinline, gnu::target("avx2,avx512f,avx512bw,avx512dq,avx512vl")]] auto RunAvx512(
    Args... args) {
  return Loop::Run(args...);
}
#endif

}  // namespace instruction_set_internal

// Calls Loop::Run(args...), compiled for `set`. `Run` must be a static function marked
// [[gnu::always_inline]]. The functions that its loops call must have the same mark. Pointers that
// do not overlap should be marked __restrict. REQUIRES: this machine supports `set`.
template <typename Loop, typename... Args>
auto RunVectorised(InstructionSet set, Args... args) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512) {
    return instruction_set_internal::RunAvx512<Loop, Args...>(args...);
  }
  if (set == InstructionSet::kAvx2) {
    return instruction_set_internal::RunAvx2<Loop, Args...>(args...);
  }
#endif
  static_cast<void>(set);
  return instruction_set_internal::RunBaseline<Loop, Args...>(args...);
}

// Enables flush-to-zero mode on this thread during the lifetime of this object. Arithmetic treats
// float32 inputs below the smallest normal number as zero and returns zero instead of such numbers
// (FTZ and DAZ on x86).
//
// Optimizer moments of elements that no longer receive a gradient decay into denormals and stay
// there for tens of thousands of steps. The processor handles each denormal operation in microcode,
// a hundred times slower. Replacing small numbers by comparisons in the loops would miss
// intermediate results, such as squares, and would cost operations for each element. This mode
// costs two instructions per call. It has the same effect in scalar and vector code, so the results
// are bit-identical for all instruction sets.
//
// The destructor restores the previous mode, so scopes may nest. On other architectures this class
// does nothing; results there differ by less than 1.2e-38 per operation.
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(_mm_getcsr()) { Set(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { Set(before_); }
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE__)
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x0040;

  // The memory clobbers keep the compiler from moving memory accesses, and thus results, across the
  // mode change. The compiler is unaware that arithmetic depends on the mode.
  static void Set(unsigned mode) {
    asm volatile("" ::: "memory");
    _mm_setcsr(mode);
    asm volatile("" ::: "memory");
  }

  const unsigned before_;
#endif
};

}  // namespace torchps
