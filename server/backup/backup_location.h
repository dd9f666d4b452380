#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

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
