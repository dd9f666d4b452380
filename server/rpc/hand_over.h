#pragma once

namespace torchps {

// Whatever a thread did before it gave a tag to gRPC has happened when gRPC hands the tag back,
// on whichever thread. gRPC sees to that; only ThreadSanitizer cannot see it, since Debian's gRPC
// is not instrumented, and has to be told. In all other builds these do nothing.
#ifdef TORCHPS_TSAN
void BeforeGrpcHasTag(void* tag);
void AfterGrpcHadTag(void* tag);
#else
inline void BeforeGrpcHasTag(void*) {}
inline void AfterGrpcHadTag(void*) {}
#endif

}  // namespace torchps
