#pragma once

#include "common/shared_segment.h"
#include "proto/parameter_service.pb.h"

// A shared segment's offer as Hello carries it. Thread-safe.

namespace torchps {

SharedMemory EncodeOffer(const SharedSegment::Offer& offer);
SharedSegment::Offer DecodeOffer(const SharedMemory& message);

}  // namespace torchps
