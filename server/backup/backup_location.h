#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// Which server keeps the copies of another one's files.
struct BackupLocation {
  int index = 0;
  std::string address;  // where the workers find it
};

// Of the server that is greeted: the next one, and of the last one the first. FAILED_PRECONDITION:
// there is no other server, or the worker does not say where it is.
absl::StatusOr<BackupLocation> GetBackupLocation(const HelloRequest& request);

}  // namespace torchps
