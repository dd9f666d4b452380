#pragma once

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace torchps {

// Extends `crc`, the CRC-32C (Castagnoli, as in iSCSI and ext4) of preceding data, by `data`. The
// initial value is 0, so Crc32c(Crc32c(0, "ab"), "c") == Crc32c(0, "abc").
inline uint32_t Crc32c(uint32_t crc, absl::string_view data) {
  // ISA-L takes the length as an int and leaves the initial and final inversions to the caller.
  constexpr size_t kLargestCall = size_t{1} << 30;
  uint32_t state = ~crc;
  while (!data.empty()) {
    const size_t size = std::min(data.size(), kLargestCall);
    auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(data.data()));
    state = crc32_iscsi(bytes, static_cast<int>(size), state);
    data.remove_prefix(size);
  }
  return ~state;
}

// Returns the CRC of A followed by B, given the CRC of A, the CRC of B and the length of B.
uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace torchps
