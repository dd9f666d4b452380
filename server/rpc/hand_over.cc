#include "server/rpc/hand_over.h"

#ifdef TORCHPS_TSAN

#include <sanitizer/tsan_interface.h>

namespace torchps {

void BeforeGrpcHasTag(void* tag) { __tsan_release(tag); }
void AfterGrpcHadTag(void* tag) { __tsan_acquire(tag); }

}  // namespace torchps

#endif
