#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace torchps {

// What is sent, stored and read at a time, at most. All that a crash may tear of a copy is in its
// last piece.
inline constexpr int64_t kCopyPieceBytes = int64_t{1} << 20;

// Whether `file`, a path below a server's directory that another server has named, is one that a
// copy can have: at most two parts of letters, digits, '-', '_' and '.', none of which begins with
// a '.', 200 bytes in all, and none that is written to be renamed. INVALID_ARGUMENT.
absl::Status CheckBackupName(absl::string_view file);

// "copies-of-17-1": what keeps server 1's files of job 17, in another server's directory.
std::string BackupFolderName(uint64_t job_id, int server_index);
// Back; false for any other name.
bool ParseBackupFolderName(absl::string_view name, uint64_t* job_id, int* server_index);

}  // namespace torchps
