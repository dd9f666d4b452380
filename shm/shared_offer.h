#pragma once

#include "proto/parameter_service.pb.h"
#include "shm/shared_segment.h"

// Conversion between a shared segment's offer and the message in Hello. Thread-safe.

namespace torchps {

SharedMemory EncodeOffer(const SharedSegment::Offer& offer);
SharedSegment::Offer DecodeOffer(const SharedMemory& message);

}  // namespace torchps
