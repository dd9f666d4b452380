#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "server/backup/backup_peer.h"
#include "storage/file_system.h"

namespace torchps {

// Fetches the backup of server 0's files from `peer` before server 0 starts, if `directory` does
// not contain any of these files. The coordinator, which runs in server 0, then restores from them.
// Other servers fetch their backup when the first worker connects.
//
// NOT_FOUND: the peer does not have a backup. Otherwise as BackupFetch::Run().
absl::Status FetchBackupOfFirstServer(FileSystem* files, const std::string& directory,
                                      BackupPeer* peer,
                                      const std::function<void(const std::string& line)>& log);

}  // namespace torchps
