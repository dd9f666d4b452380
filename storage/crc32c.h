#pragma once

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace torchps {

// CRC-32C (Castagnoli, as iSCSI and ext4 use it) of everything before and `data`; `crc` is 0 at the
// beginning, so Crc32c(Crc32c(0, "ab"), "c") == Crc32c(0, "abc").
inline uint32_t Crc32c(uint32_t crc, absl::string_view data) {
  // ISA-L counts in int and leaves the inversions before and after to its caller.
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

// The CRC of A followed by B, from that of A, that of B, and B's length.
uint32_t Crc32cCombine(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace torchps
