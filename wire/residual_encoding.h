#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"
#include "proto/job.pb.h"

namespace torchps {

// Error feedback on one block, in one pass over it: adds `gradient` to `residual`, encodes the sum
// as Encode (wire/encoding.h) would, and leaves in `residual` what the encoding loses: the sum
// less what Decode would give. EncodedBytes(...) bytes go to `destination`, at any address.
//
// Thread-safe; the same bits on every instruction set. REQUIRES: `kind` is not FLOAT32; both arrays
// are of the same length and do not overlap; every number is finite.
void EncodeKeepingRest(EncodingSpec::Kind kind, absl::Span<const float> gradient, double fraction,
                       absl::Span<float> residual, uint8_t* destination,
                       InstructionSet set = BestInstructionSet());

}  // namespace torchps
