#pragma once

#include <string>

#include "grpcpp/support/channel_arguments.h"

namespace torchps {

// Makes a channel reconnect quickly. The channel retries a lost server and resolves the server's
// name at least once a second. A restarted server is therefore found within about a second, and
// after a DNS change within two. By default, gRPC waits up to 20 s and queries DNS once in 30 s.
void FindAgainSoon(grpc::ChannelArguments* arguments);

// Returns the channel target for `address`. If the address is unknown (empty, or file:PATH),
// returns a target without a server, so that calls fail with UNAVAILABLE at once.
std::string ChannelTarget(const std::string& address);

}  // namespace torchps
