#pragma once

#include <string>

#include "grpcpp/server_context.h"

namespace torchps {

// Returns the address and port of the call's peer, which are unique among open connections. Returns
// an empty string for a call from this process, because in-process callers may share a name.
// REQUIRES: the call has arrived.
std::string ConnectionName(const grpc::ServerContext& context);

}  // namespace torchps
