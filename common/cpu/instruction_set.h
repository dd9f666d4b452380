#pragma once

#include <vector>

#include "absl/strings/string_view.h"

// Compiles loops over arrays once per instruction set and selects the version for the current
// machine. The loops are plain code that the compiler vectorises. Build rules that use this header
// need three flags: -O3, -fno-trapping-math (otherwise comparisons prevent vectorisation), and
// -ffp-contract=off (so that multiplications and additions are never fused). Because IEEE 754
// square roots and divisions are exactly rounded, all instruction sets then return the same bits.

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

// Calls Loop::Run(args...), compiled for `set`. `Run` is a static function marked
// [[gnu::always_inline]], as are the functions called in the function's loops. Pointers that do not
// overlap are marked __restrict there. REQUIRES: this machine supports `set`.
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

}  // namespace torchps
