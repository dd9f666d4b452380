#include "server/fetch_copies.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/backup/backup_fetch.h"

namespace torchps {
namespace {

bool IsOfFirstServer(const std::string& name) {
  return absl::StartsWith(name, "checkpoint-") || absl::StartsWith(name, "log-0-of-") ||
         name == "coordinator.state";
}

}  // namespace

absl::Status FetchBackupOfFirstServer(FileSystem* files, const std::string& directory,
                                      BackupPeer* peer,
                                      const std::function<void(const std::string& line)>& log) {
  BackupFetch::Options options;
  options.files = files;
  options.peer = peer;
  options.directory = directory;
  options.begin = [&log](const std::string& what, int64_t) {
    log(absl::StrCat("server 0 ", what));
  };
  BackupFetch fetch(std::move(options));
  const absl::StatusOr<std::vector<std::string>> names = files->List(directory);
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  if (names.ok() && absl::c_any_of(*names, IsOfFirstServer) && !fetch.WasBrokenOff()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> fetched = fetch.Run();
  if (!fetched.ok()) return fetched.status();
  if (*fetched > 0) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(peer->name(),
                   " has no backup of server 0's files; name the server after it in the "
                   "workers' --servers list, or start without --copies_at to begin a new job"));
}

}  // namespace torchps
