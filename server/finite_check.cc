#include "server/finite_check.h"

#include <algorithm>
#include <cstring>

namespace torchps {
namespace {

// All ones exactly for infinities and NaNs (IEEE 754).
constexpr uint32_t kExponentMask = 0x7f800000u;

bool IsNonFinite(float element) {
  uint32_t bits;
  std::memcpy(&bits, &element, sizeof(bits));
  return (bits & kExponentMask) == kExponentMask;
}

}  // namespace

int64_t FirstNonFinite(absl::Span<const float> elements) {
  // A chunk is judged without branches, which vectorises; only a bad one is searched.
  constexpr size_t kChunk = 1024;
  for (size_t begin = 0; begin < elements.size(); begin += kChunk) {
    const size_t end = std::min(begin + kChunk, elements.size());
    uint32_t found = 0;
    for (size_t i = begin; i < end; ++i) found |= IsNonFinite(elements[i]) ? 1u : 0u;
    if (found == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if (IsNonFinite(elements[i])) return static_cast<int64_t>(i);
    }
  }
  return -1;
}

}  // namespace torchps
