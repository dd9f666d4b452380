#pragma once

namespace torchps {

// Gives this process's TCP sockets that never leave the machine, and have `port` at one of their
// ends, the congestion control "cubic". Returns how many it changed.
//
// A loopback has no queue to be gentle with, and what a machine is set up with for the internet may
// be far slower there: bbr, which paces, moves 4 GB/s where cubic moves 8
// (bench/results/tuning.md). gRPC has no setting for it and makes its sockets itself, so they are
// looked up in /proc/self/fd, when a connection is known to be there and now and then afterwards,
// since gRPC reconnects by itself. A listening socket hands its setting on to what it accepts.
//
// Sockets count as loopback when both ends are (a listening one: where it listens), or when both
// ends have the same address. Never fails: what cannot be looked up or changed, because the system
// has no /proc or no cubic, stays as it is. Takes some 2 us per open file. Thread-safe.
int UseCubicOnLoopback(int port);

}  // namespace torchps
