#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "server/job/parameter_server.h"

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

}  // namespace torchps
