#include "server/backup/backup_location.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<BackupLocation> GetBackupLocation(const HelloRequest& request) {
  if (request.server_count() < 2) {
    return absl::FailedPreconditionError(
        "durability.copies is 1, which needs at least 2 servers, and this job has 1; name more in "
        "--servers, or leave copies out");
  }
  if (request.server_index() < 0 || request.server_index() >= request.server_count()) {
    return absl::InvalidArgumentError(absl::StrCat("server_index is ", request.server_index(),
                                                   "; expected 0 to ", request.server_count() - 1));
  }
  BackupLocation place;
  place.index = (request.server_index() + 1) % request.server_count();
  if (request.server_address_size() != request.server_count()) {
    return absl::FailedPreconditionError(
        absl::StrCat("durability.copies is 1, but the worker names the addresses of ",
                     request.server_address_size(), " servers; expected the addresses of all ",
                     request.server_count(), ", which copy files from each other"));
  }
  place.address = request.server_address(place.index);
  if (!place.address.empty()) return place;
  return absl::FailedPreconditionError(
      absl::StrCat("durability.copies is 1, but the worker has no address for server ", place.index,
                   ", which runs in the worker's process; leave copies out"));
}

}  // namespace torchps
