#pragma once

namespace torchps {

// Settings of gRPC and of the allocator that hold for the whole process, and how it ends. To be
// called in main, before the first use of gRPC and after StopSignal was made, since gRPC's threads
// begin here and must leave the signals to it.
//
// - A client looks for a lost server every 200 ms instead of every 5 s.
// - A thread is woken for a whole frame instead of for each packet of it: gRPC tells the kernel how
//   much it still expects (SO_RCVLOWAT). Over 1 and 10 Gbit/s that takes 1.1 to 1.6 times less
//   processor time (docs/results.md).
// - gRPC's own lines about what we report in words stay away; GRPC_VERBOSITY=ERROR shows them.
// - Freed memory stays with the process: the pages of a frame that was handled take the next one,
//   instead of being given back and faulted in anew, which costs more than sending them
//   (bench/results/tuning.md).
// - Abseil does not look for lock-order inversions. Debian's is built with that search on, so that
//   every lock that gRPC takes goes through one graph behind one spin lock (the same page).
// - gRPC is never torn down. Its tear-down, when the last server or channel goes, joins a thread
//   that may sit in a poll for up to 10 s (seen as a ps_server that had stopped and did not exit),
//   and nothing in it is worth waiting for: the process is about to end.
//
// What is set in the environment already is left as it is.
void PrepareGrpcProcess();

}  // namespace torchps
