#pragma once

#include "absl/status/status.h"
#include "storage/file_system.h"

namespace torchps {

// OK: no entry that the zip archive's directory lists is compressed, but for code/..., so that none
// is larger than the file. torch.save compresses nothing, and torch's reader would inflate a few KB
// of a file of any origin to whatever they say they are. Thread-safe.
//
// DATA_LOSS: the words after "... is not a state_dict: ", as "its entry 'archive/data/0' is
// compressed". Others are those of FileSystem.
absl::Status CheckNothingIsCompressed(const ReadableFile& file);

}  // namespace torchps
