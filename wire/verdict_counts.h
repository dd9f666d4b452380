#pragma once

#include <cstdint>

#include "proto/parameter_service.pb.h"

namespace torchps {

// Functions on verdict counts. Pure functions.

// Increments the count for `verdict`. Returns false, leaving the counts unchanged, if a gradient
// cannot receive this verdict.
bool Count(Verdict verdict, VerdictCounts* counts);
// Adds the counts of `part` to `sum`.
void Add(const VerdictCounts& part, VerdictCounts* sum);

// Return the number of verdicts that changed their block, that did not, and the total.
inline uint64_t Applied(const VerdictCounts& counts) { return counts.accepted() + counts.scaled(); }
inline uint64_t NotApplied(const VerdictCounts& counts) {
  return counts.rejected() + counts.late() + counts.withheld();
}
inline uint64_t Verdicts(const VerdictCounts& counts) {
  return Applied(counts) + NotApplied(counts);
}

}  // namespace torchps
