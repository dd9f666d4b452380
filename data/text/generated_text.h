#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// At least `bytes` bytes of plain English-like ASCII made by a small grammar: sentences whose verbs
// agree with their subjects, sums that are right, and lists in order, in short paragraphs. There is
// something to learn at every range: spelling, agreement across a clause, carrying in a sum. The
// same text on every machine for the same seed.
std::string GenerateText(int64_t bytes, uint64_t seed);

}  // namespace torchps
