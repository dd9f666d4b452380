#pragma once

#include <cstddef>

namespace torchps {

// A model that a core's second-level cache holds is read again before it has left it; the values of
// a larger one are not, and had better go past the caches.
inline constexpr size_t kStreamFromBytes = size_t{2} << 20;

// memcpy for blocks whose destination will not be read soon, or is larger than the caches:
// streaming stores, which neither read the destination first nor push anything out of the caches,
// and four pages side by side, which keeps more of the memory busy. Measured on blocks of 1 MiB:
// 14 GB/s where memcpy moves 7 to 8. `source` and `destination` do not overlap;
// any alignment, best where both begin on a multiple of 16. Its stores are ordered like memcpy's.
void StreamingCopy(void* destination, const void* source, size_t bytes);

}  // namespace torchps
