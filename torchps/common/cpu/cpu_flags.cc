#include "torchps/common/cpu/cpu_flags.h"

namespace torchps {
namespace {

std::vector<InstructionSet> Detect() {
  std::vector<InstructionSet> sets = {InstructionSet::kBaseline};
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) return sets;
  sets.push_back(InstructionSet::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back(InstructionSet::kAvx512);
  }
#endif
  return sets;
}

}  // namespace

absl::string_view InstructionSetName(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "";
}

const std::vector<InstructionSet>& InstructionSets() {
  static const auto* const sets = new std::vector<InstructionSet>(Detect());
  return *sets;
}

InstructionSet BestInstructionSet() { return InstructionSets().back(); }

}  // namespace torchps
