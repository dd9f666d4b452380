#pragma once

#include <string>

#include "grpcpp/support/channel_arguments.h"

namespace torchps {

// Configures gRPC, the allocator and process shutdown for the whole process. Call in main before
// the first use of gRPC, and after constructing StopSignal, because gRPC's threads start here and
// must inherit the blocked signals.
//
// - Clients poll for lost servers every 200 ms instead of every 5 s.
// - Threads wake once per frame instead of once per packet: gRPC passes the number of expected
//   bytes to the kernel (SO_RCVLOWAT). Over 1 and 10 Gbit/s this reduces CPU time by a factor of
//   1.1 to 1.6 (docs/results.md).
// - gRPC does not log errors that torchps already reports; GRPC_VERBOSITY=ERROR shows them.
// - The process keeps freed memory. Reusing the pages of the previous frame is cheaper than
//   returning them and faulting them in again, which would cost more than sending
//   (bench/results/tuning.md).
// - Abseil's lock-order checks are off. Debian builds Abseil with these checks, so that each lock
//   in gRPC would pass through a global graph behind one spin lock (bench/results/tuning.md).
// - gRPC is never shut down. The shutdown would join a thread that may poll for up to 10 s, which
//   delayed the exit of stopped ps_servers. Waiting is unnecessary because the process is about to
//   end.
//
// Settings from the environment take precedence.
void PrepareGrpcProcess();

// Makes a channel reconnect quickly. The channel retries a lost server and resolves the server's
// name at least once a second. A restarted server is therefore found within about a second, and
// after a DNS change within two. By default, gRPC waits up to 20 s and queries DNS once in 30 s.
void FindAgainSoon(grpc::ChannelArguments* arguments);

// Returns the channel target for `address`. If the address is unknown (empty, or file:PATH),
// returns a target without a server, so that calls fail with UNAVAILABLE at once.
std::string ChannelTarget(const std::string& address);

}  // namespace torchps
