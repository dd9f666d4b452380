#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "server/backup/backup_peer.h"
#include "storage/file_system.h"

namespace torchps {

// What the first server does before it begins, where it is told who has copies of its files: if
// there is nothing of it in `directory`, it brings them there. So the coordinator, a role of it,
// comes back with them; the other servers do this when a worker greets them.
//
// NOT_FOUND: there are no copies there; otherwise as BackupFetch::Run().
absl::Status FetchBackupOfFirstServer(FileSystem* files, const std::string& directory,
                                      BackupPeer* peer,
                                      const std::function<void(const std::string& line)>& log);

}  // namespace torchps
