#pragma once

#include "absl/status/status.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Checks that all entries in the zip archive are uncompressed, except code/..., so entries are not
// larger than the file. torch.save does not compress entries. torch's reader would inflate a few KB
// of untrusted bytes to any size. Thread-safe.
//
// DATA_LOSS: the message completes "... is not a state_dict: ", for example "its entry
// 'archive/data/0' is compressed". Also returns FileSystem's errors.
absl::Status CheckNothingIsCompressed(const ReadableFile& file);

}  // namespace torchps
