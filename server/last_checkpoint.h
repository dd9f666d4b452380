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

// What a server other than the first does before it stops: it asks the coordinator, a role of the
// first one, for a checkpoint, unless the last one has all that its blocks have learnt. Where the
// first server is, `coordinator` says or, where that is empty, the last checkpoint. Waits at most
// `timeout`. REQUIRES: server->job() is not null.
//   OK           nothing is lost that was pushed before the call
//   UNAVAILABLE  how much is lost, and why
absl::Status AskForLastCheckpoint(
    ParameterServer* server, const std::string& coordinator,
    const std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>&
        connect,
    absl::Duration timeout);

}  // namespace torchps
