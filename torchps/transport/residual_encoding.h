#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Applies error feedback to a block in a single pass. Adds `gradient` to `residual`, encodes the
// sum like Encode (torchps/transport/encoding.h), and stores the encoding error in `residual`: the
// sum minus its decoded value. Writes EncodedBytes(...) bytes to `destination`, which may be
// unaligned.
//
// Thread-safe; returns the same bits on all instruction sets. REQUIRES: `kind` is not FLOAT32; both
// arrays are equally long, do not overlap, and contain only finite numbers.
void EncodeKeepingRest(EncodingSpec::Kind kind, absl::Span<const float> gradient, double fraction,
                       absl::Span<float> residual, uint8_t* destination,
                       InstructionSet set = BestInstructionSet());

}  // namespace torchps
