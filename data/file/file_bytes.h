#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace torchps {

// Larger files are refused before they eat the machine's memory; also what a small damaged gzip
// file may inflate to. The largest set these readers are meant for (EMNIST) has 0.55 GB.
inline constexpr int64_t kMaxDataFileBytes = int64_t{2} << 30;

// The contents of a regular file, inflated if it is gzip (by its first two bytes, whatever its
// name is; several members follow each other as gzip(1) allows; CRC and length are verified).
//
// NOT_FOUND, PERMISSION_DENIED: as the system says. INVALID_ARGUMENT: not a regular file, or more
// than `max_bytes`. DATA_LOSS: gzip data is truncated or damaged. Each names `path`.
absl::StatusOr<std::string> ReadFileBytes(const std::string& path,
                                          int64_t max_bytes = kMaxDataFileBytes);

}  // namespace torchps
