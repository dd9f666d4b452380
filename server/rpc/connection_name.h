#pragma once

#include <string>

#include "grpcpp/server_context.h"

namespace torchps {

// The connection on which a call came, as no other one that is open now is named: by the address
// and port of its other end. Empty: the call came from within this process, where all callers may
// share one. REQUIRES: the call has come.
std::string ConnectionName(const grpc::ServerContext& context);

}  // namespace torchps
