#pragma once

#include "proto/parameter_service.pb.h"
#include "shm/shared_segment.h"

// A shared segment's offer as Hello carries it. Thread-safe.

namespace torchps {

SharedMemory EncodeOffer(const SharedSegment::Offer& offer);
SharedSegment::Offer DecodeOffer(const SharedMemory& message);

}  // namespace torchps
