#pragma once

#include <vector>

#include "absl/strings/string_view.h"

// Loops over arrays, compiled once per instruction set and chosen by the machine they run on. They
// are plain loops that the compiler vectorises. What uses this is compiled with -O3 and
// -fno-trapping-math (or comparisons forbid it), and with -ffp-contract=off, so that no
// multiplication is fused with an addition where the machine could: together with the exactly
// rounded root and division of IEEE 754, every instruction set then gives the same bits.

namespace torchps {

enum class InstructionSet {
  kBaseline,  // what every machine of this architecture has: SSE2 on x86-64
  kAvx2,
  kAvx512,  // F, BW, DQ and VL
};

// "baseline", "avx2", "avx512".
absl::string_view InstructionSetName(InstructionSet set);

// Those that this machine has, the best one last. All are thread-safe.
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
// [[gnu::always_inline]], as are the functions that it calls in its loops; pointers that do not
// overlap are marked __restrict there. REQUIRES: this machine has `set`.
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
