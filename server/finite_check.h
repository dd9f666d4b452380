#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace torchps {

// Index of the first element that is infinite or not a number, -1 if all are finite. Tests the
// exponent bits, several elements at a time; 5 to 7 GB/s per core.
int64_t FirstNonFinite(absl::Span<const float> elements);

}  // namespace torchps
