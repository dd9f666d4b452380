// What ThreadSanitizer is not to call a race in programs that use Debian's gRPC, whose libraries
// are not instrumented. Linked into each of them once.

#ifdef TORCHPS_TSAN

// The parts of gRPC that live in its headers are instrumented and run before the tag is back: what
// they read there another thread wrote when it began the operation. And memory that a slice borrows
// is given back by whichever thread lets go of it last, in the order of a count inside gRPC. And
// what Write does after its tag was armed comes before the next Write, on whichever thread, only by
// way of the queue. And templates of the standard library are shared between the two, so what gRPC
// does to containers of its own, under locks that are not seen, is seen.
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::CompletionQueue::AsyncNextInternal\n"
         "race:grpc_core::NewSliceRefcount::Destroy\n"
         "race:grpc::ServerAsync\n"
         "race:grpc_core::channelz::\n";
}

#endif
