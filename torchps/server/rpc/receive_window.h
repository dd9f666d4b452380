#pragma once

#include <cstdint>

namespace torchps {

// Sets gRPC's HTTP/2 flow-control window: the bytes that a peer may send on one connection before a
// call asks for them. The window lets a push send ahead while the server applies the previous frame
// (measured in bench/results/tuning.md). Any peer may fill this memory.
//
// gRPC offers two sizes. Without bandwidth estimation, the window is 64 KiB, and a push stalls in
// every frame until the server asks for the rest. If estimation is on, the window is at least 4 MiB
// and grows, without a bound on the sum over all connections. gRPC 1.51 supports a custom size only
// through a hook for tests, which each estimate calls. Only this file uses that hook. It leaves
// other gRPC versions unchanged.
//
// The setting applies to the whole process; the last call wins.

// Returns true if this gRPC supports a custom window. If it does, GRPC_ARG_HTTP2_BDP_PROBE must be
// on for the size to take effect. If not, that argument must be off to bound the memory.
bool CanSetReceiveWindow();

// Sets the window. Each connection adopts the new size with gRPC's next bandwidth estimate: a new
// connection at the first bytes, an older one within about 100 ms of traffic. Does nothing if gRPC
// does not support custom sizes. Thread-safe. REQUIRES: the first call comes before the first
// connection.
void SetReceiveWindow(int64_t bytes);

}  // namespace torchps
