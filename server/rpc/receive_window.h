#pragma once

#include <cstdint>

namespace torchps {

// How many bytes a peer may send on one connection before a call has asked for them: gRPC's window
// of HTTP/2's flow control. It is what a push runs ahead while the server applies the frame before
// (bench/results/tuning.md has what that brings), and it is memory that any peer may fill.
//
// gRPC offers two sizes. With its estimate of the bandwidth off, the window is 64 KiB, and a push
// stands still in every frame until the server has asked for the rest. With the estimate on, it is
// at least 4 MiB and grows, and nothing bounds the sum over all connections. What lies between, a
// size of our choosing, gRPC 1.51 only offers to its own tests: a hook that is asked for the window
// whenever the estimate is made. This file uses that hook, and is the only one that does. With any
// other version nothing of it is touched.
//
// All of this holds for the whole process: the last call decides.

// Whether this gRPC can be told. Where it is, GRPC_ARG_HTTP2_BDP_PROBE has to be on for a size to
// take effect, and where not, it has to be off for the memory to stay bounded.
bool CanSetReceiveWindow();

// Every connection takes up the new size with its next estimate: at its first bytes, then within
// some 100 ms of traffic. Thread-safe. REQUIRES: called before the first connection, and then at
// any time. Does nothing where gRPC cannot be told.
void SetReceiveWindow(int64_t bytes);

}  // namespace torchps
