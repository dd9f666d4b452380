#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// Maximum size of one piece. Crashes can tear only the last piece of a copy.
inline constexpr int64_t kCopyPieceBytes = int64_t{1} << 20;

// Returns INVALID_ARGUMENT unless `file` is a valid name of a copy. Another server chose this path
// below its directory. Valid names have at most two parts and 200 bytes. The parts contain letters,
// digits, '-', '_' and '.', and do not begin with '.'. The name must not end in ".tmp".
absl::Status CheckBackupName(absl::string_view file);

// Returns the folder for copies of a server's files in another server's directory, for example
// "copies-of-17-1" for server 1 of job 17.
std::string BackupFolderName(uint64_t job_id, int server_index);
// Parses the folder name. Returns false for other names.
bool ParseBackupFolderName(absl::string_view name, uint64_t* job_id, int* server_index);

// Identifies the server that holds the copies of another server's files.
struct BackupLocation {
  int index = 0;
  std::string address;  // as the workers know it
};

// Returns the location for the server that receives `request`: the next server, or the first for
// the last server. Returns FAILED_PRECONDITION if the job uses a single server, or if the worker
// does not send the address.
absl::StatusOr<BackupLocation> GetBackupLocation(const HelloRequest& request);

}  // namespace torchps
