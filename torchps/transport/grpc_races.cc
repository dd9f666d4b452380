// ThreadSanitizer suppressions for programs that use Debian's gRPC, because these libraries are not
// instrumented. Linked once into each program.

#ifdef TORCHPS_TSAN

// The suppressions cover these false positives:
// - The code in gRPC's headers is instrumented. Before a completion queue returns a tag, this code
//   reads data that another thread wrote when that thread started the operation.
// - The last thread to release a slice frees the borrowed memory. gRPC orders this with an internal
//   counter.
// - Write() still runs some code after it has started the operation. The next Write() may run on
//   another thread. Only the completion queue orders the two calls.
// - Instrumented and uninstrumented code share standard library templates. ThreadSanitizer
//   therefore sees gRPC's accesses to containers, but not gRPC's locks.
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::CompletionQueue::AsyncNextInternal\n"
         "race:grpc_core::NewSliceRefcount::Destroy\n"
         "race:grpc::ServerAsync\n"
         "race:grpc_core::channelz::\n";
}

#endif
