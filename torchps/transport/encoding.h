#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/proto/job.pb.h"
#include "torchps/transport/encoding_elements.h"

// Conversion between float32 elements and payload bytes. docs/protocol.md describes the formats.
// All functions are thread-safe and return the same bits on all instruction sets.
//
// Finite elements never become infinite: elements too large for an encoding are clamped to the
// encoding's largest number. Workers with error feedback (torchps/client/error_feedback.h) send the
// remainder later.

namespace torchps {

// Returns the size in bytes of the smallest independently decodable unit: an element, an INT8 group
// or a TOP_K entry.
size_t EncodingUnitBytes(EncodingSpec::Kind kind);

// Returns the encoded size of `elements` >= 0 elements. Only TOP_K uses `fraction`, in (0, 1]: it
// encodes max(1, ceil(fraction * elements)) entries.
size_t EncodedBytes(EncodingSpec::Kind kind, int64_t elements, double fraction);

// Writes EncodedBytes(kind, elements.size(), fraction) bytes to `destination`, which may be
// unaligned. Kinds other than TOP_K may be encoded in pieces of a multiple of kInt8GroupElements
// elements; append the bytes of the pieces. Non-finite elements stay non-finite, or turn the scale
// of their INT8 group into a NaN. Either way, checks on the decoded payload detect them.
void Encode(EncodingSpec::Kind kind, absl::Span<const float> elements, double fraction,
            uint8_t* destination, InstructionSet set = BestInstructionSet());

// Decodes `bytes` written by Encode, which may be unaligned. REQUIRES: `bytes` is well formed for
// elements.size() elements (FramePayload::Check). For kinds other than TOP_K, `bytes` may be a
// piece of the encoding, of a multiple of kInt8GroupElements elements (see Encode).
void Decode(EncodingSpec::Kind kind, absl::Span<const uint8_t> bytes, absl::Span<float> elements,
            InstructionSet set = BestInstructionSet());

}  // namespace torchps
