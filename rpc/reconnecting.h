#pragma once

#include <string>

#include "grpcpp/support/channel_arguments.h"

namespace torchps {

// For every channel to a server: one that is away is tried again at least once a second, and its
// name is looked up anew as often. So a server that is back is found within about a second, and one
// whose DNS name leads elsewhere by now within two. gRPC by itself waits for up to 20 s and asks
// DNS once in 30 s.
void FindAgainSoon(grpc::ChannelArguments* arguments);

// What such a channel is made for: `address`, or where there is none yet (empty, or file:PATH) a
// place where no server can be, so that calls are UNAVAILABLE at once.
std::string ChannelTarget(const std::string& address);

}  // namespace torchps
