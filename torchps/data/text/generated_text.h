#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// Returns at least `bytes` bytes of English-like ASCII text from a small grammar: sentences with
// agreeing subjects and verbs, correct sums, and ordered lists, in short paragraphs. So a model can
// learn at all ranges: spelling, agreement across a clause, carrying in a sum. The text depends
// only on the seed, not on the machine.
std::string GenerateText(int64_t bytes, uint64_t seed);

}  // namespace torchps
