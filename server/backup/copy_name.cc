#include "server/backup/copy_name.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/printable.h"

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

}  // namespace torchps
