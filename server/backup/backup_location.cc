#include "server/backup/backup_location.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/text.h"

namespace torchps {
namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr size_t kMaxParts = 2;

bool IsPart(absl::string_view part) {
  return !part.empty() && part[0] != '.' && absl::c_all_of(part, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

}  // namespace

absl::Status CheckBackupName(absl::string_view file) {
  const std::vector<absl::string_view> parts = absl::StrSplit(file, '/');
  if (file.size() <= kMaxNameBytes && parts.size() <= kMaxParts && absl::c_all_of(parts, IsPart) &&
      !absl::EndsWith(file, ".tmp")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", Printable(file.substr(0, kMaxNameBytes)),
      "' is not a valid name of a copy; expected one or two parts of letters, digits, '-', '_' "
      "and '.', of ",
      kMaxNameBytes, " bytes at most"));
}

std::string BackupFolderName(uint64_t job_id, int server_index) {
  return absl::StrCat("copies-of-", job_id, "-", server_index);
}

bool ParseBackupFolderName(absl::string_view name, uint64_t* job_id, int* server_index) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, "copies-of-")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '-');
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], job_id) &&
         absl::SimpleAtoi(parts[1], server_index) &&
         BackupFolderName(*job_id, *server_index) == name;
}

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
