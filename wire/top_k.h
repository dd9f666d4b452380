#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"

// TOP_K: of a block the elements of largest magnitude, each with its index. docs/protocol.md describes
// the format. All functions are thread-safe, and give the same bits on every instruction set.

namespace torchps {

// One element that is sent.
struct TopKEntry {
  uint32_t index = 0;
  float value = 0;
};
inline constexpr size_t kTopKEntryBytes = 8;
TopKEntry ReadTopKEntry(const uint8_t* bytes);

// How many of `elements` > 0 are sent: max(1, ceil(fraction * elements)), and never more than all.
int64_t TopKOf(int64_t elements, double fraction);

// Writes the k largest magnitudes, of equal ones the first, by ascending index: k * kTopKEntryBytes
// at any address. Numbers that are not finite are larger than all others.
// REQUIRES: 1 <= k <= elements.size().
void EncodeTopK(absl::Span<const float> elements, int64_t k, uint8_t* to, InstructionSet set);

// All elements: what is not in `bytes` is zero. REQUIRES: every index is within `elements`.
void DecodeTopK(absl::Span<const uint8_t> bytes, absl::Span<float> elements);

}  // namespace torchps
