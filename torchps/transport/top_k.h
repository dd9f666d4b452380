#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "torchps/common/cpu/cpu_flags.h"

// TOP_K encoding: the elements of largest magnitude in a block, each with its index.
// docs/protocol.md describes the format. All functions are thread-safe and return the same bits on
// all instruction sets.

namespace torchps {

// An encoded element.
struct TopKEntry {
  uint32_t index = 0;
  float value = 0;
};
inline constexpr size_t kTopKEntryBytes = 8;
TopKEntry ReadTopKEntry(const uint8_t* bytes);

// Returns the number of entries for `elements` > 0 elements: max(1, ceil(fraction * elements)), but
// at most `elements`.
int64_t TopKOf(int64_t elements, double fraction);

// Writes the k elements of largest magnitude in ascending index order: k * kTopKEntryBytes bytes,
// to any address. Among equal magnitudes the lowest indices win. Non-finite numbers rank above all
// finite numbers. REQUIRES: 1 <= k <= elements.size().
void EncodeTopK(absl::Span<const float> elements, int64_t k, uint8_t* to, InstructionSet set);

// Decodes `bytes` into `elements`; elements without an entry become zero. REQUIRES: all indices are
// below elements.size().
void DecodeTopK(absl::Span<const uint8_t> bytes, absl::Span<float> elements);

}  // namespace torchps
