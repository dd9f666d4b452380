#include "server/saved_identity.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace torchps {
namespace {

constexpr char kPrefix[] = "server-";
constexpr char kSuffix[] = ".place";
constexpr int64_t kMaxBytes = 4096;

std::optional<SavedIdentity> Parse(absl::string_view text) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    fields.insert(field);
  }
  SavedIdentity remembered;
  ServerIdentity& place = remembered.place;
  const bool whole = absl::SimpleAtoi(fields["job_id"], &place.job_id) &&
                     absl::SimpleAtoi(fields["server_index"], &place.server_index) &&
                     absl::SimpleAtoi(fields["server_count"], &place.server_count);
  if (!whole) return std::nullopt;
  place.address = fields["address"];
  place.coordinator = fields["coordinator"];
  remembered.listened = fields["listened"];
  return remembered;
}

}  // namespace

absl::Status SaveIdentity(FileSystem& files, const std::string& directory,
                          const SavedIdentity& place) {
  if (absl::Status made = files.CreateDirectories(directory); !made.ok()) return made;
  return WriteFileAtomically(
      files, absl::StrCat(directory, "/", kPrefix, place.place.server_index, kSuffix),
      absl::StrCat("job_id ", place.place.job_id, "\nserver_index ", place.place.server_index,
                   "\nserver_count ", place.place.server_count, "\naddress ", place.place.address,
                   "\ncoordinator ", place.place.coordinator, "\nlistened ", place.listened, "\n"));
}

std::optional<SavedIdentity> FindIdentity(FileSystem& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return std::nullopt;
  std::vector<std::string> found;
  for (const std::string& name : *names) {
    if (absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kSuffix)) found.push_back(name);
  }
  if (found.size() != 1) return std::nullopt;
  const absl::StatusOr<std::string> text =
      ReadWholeFile(files, absl::StrCat(directory, "/", found.front()), kMaxBytes);
  return text.ok() ? Parse(*text) : std::nullopt;
}

}  // namespace torchps
