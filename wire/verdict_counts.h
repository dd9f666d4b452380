#pragma once

#include <cstdint>

#include "proto/parameter_service.pb.h"

namespace torchps {

// Verdicts as numbers. Pure functions.

// One more of that verdict. False, and nothing is counted: it is none that a gradient can get.
bool Count(Verdict verdict, VerdictCounts* counts);
// Adds each count of `part` to that of `sum`.
void Add(const VerdictCounts& part, VerdictCounts* sum);

// Verdicts that changed their block, that did not, and all.
inline uint64_t Applied(const VerdictCounts& counts) { return counts.accepted() + counts.scaled(); }
inline uint64_t NotApplied(const VerdictCounts& counts) {
  return counts.rejected() + counts.late() + counts.withheld();
}
inline uint64_t Verdicts(const VerdictCounts& counts) {
  return Applied(counts) + NotApplied(counts);
}

}  // namespace torchps
