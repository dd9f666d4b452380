#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "torchps/common/log_line.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/job/parameter_server.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Asks the coordinator, which runs in server 0, for a checkpoint before a server other than server
// 0 stops. Returns immediately if the last checkpoint contains all changes of this server's blocks.
// Uses the address `coordinator` or, if it is empty, the address of server 0 in the last
// checkpoint. Waits at most `timeout`.
// REQUIRES: server->job() is not null.
//   OK           all pushes before the call are saved
//   UNAVAILABLE  changes would be lost; the message says how many and why
absl::Status AskForLastCheckpoint(
    ParameterServer* server, const std::string& coordinator,
    const std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>&
        connect,
    absl::Duration timeout);

// Fetches the backup of server 0's files from `peer` before server 0 starts, if `directory` does
// not contain any of these files. The coordinator, which runs in server 0, then restores from them.
// Other servers fetch their backup when the first worker connects.
//
// NOT_FOUND: the peer does not have a backup. Otherwise as BackupFetch::Run().
absl::Status FetchBackupOfFirstServer(FileSystem* files, const std::string& directory,
                                      BackupPeer* peer, const LogLine& log);

}  // namespace torchps
