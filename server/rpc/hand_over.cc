#include "server/rpc/hand_over.h"

#ifdef TORCHPS_TSAN

#include <sanitizer/tsan_interface.h>

namespace torchps {

void BeforeGrpcHasTag(void* tag) { __tsan_release(tag); }
void AfterGrpcHadTag(void* tag) { __tsan_acquire(tag); }

}  // namespace torchps

// The parts of gRPC that live in its headers are instrumented and run before the tag is back: what
// they read there another thread wrote when it began the operation.
extern "C" const char* __tsan_default_suppressions() {
  return "race:grpc::CompletionQueue::AsyncNextInternal\n";
}

#endif
