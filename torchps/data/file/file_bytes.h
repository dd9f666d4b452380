#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace torchps {

// The maximum file size, also after decompression. Protects the machine's memory, for example
// against small damaged gzip files. EMNIST, the largest expected dataset, needs 0.55 GB.
inline constexpr int64_t kMaxDataFileBytes = int64_t{2} << 30;

// Returns the contents of a regular file. Decompresses gzip files, detected by the first two bytes,
// with one or more members as in gzip(1), and verifies CRC and length.
//
// NOT_FOUND, PERMISSION_DENIED: system errors. INVALID_ARGUMENT: `path` is not a regular file, or
// larger than `max_bytes`. DATA_LOSS: the gzip data are truncated or damaged. Messages contain
// `path`.
absl::StatusOr<std::string> ReadFileBytes(const std::string& path,
                                          int64_t max_bytes = kMaxDataFileBytes);

}  // namespace torchps
