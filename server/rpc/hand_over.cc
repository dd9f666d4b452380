#include "server/rpc/hand_over.h"

#ifdef TORCHPS_TSAN

#include <sanitizer/tsan_interface.h>

namespace torchps {

void BeforeGrpcHasTag(void* tag) { __tsan_release(tag); }
void AfterGrpcHadTag(void* tag) { __tsan_acquire(tag); }

}  // namespace torchps

// The parts of gRPC that live in its headers are instrumented and run before the tag is back: what
// they read there another thread wrote when it began the operation. And memory that a slice borrows
// is given back by whichever thread lets go of it last, in the order of a count inside gRPC. And
// what Write does after its tag was armed comes before the next Write, on whichever thread, only by
// way of the queue.
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::CompletionQueue::AsyncNextInternal\n"
         "race:grpc_core::NewSliceRefcount::Destroy\n"
         "race:grpc::ServerAsync\n";
}

#endif
