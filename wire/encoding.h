#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/cpu/instruction_set.h"
#include "proto/job.pb.h"
#include "wire/encoding_elements.h"

// How float32 elements become the bytes of a payload, and bytes become elements. docs/protocol.md
// describes the formats. All functions are thread-safe, and give the same bits on every instruction
// set.
//
// A finite element never becomes an infinity: what is too large for an encoding becomes its largest
// number (a worker that keeps what an encoding loses, as client/error_feedback.h does, sends the
// rest later).

namespace torchps {

// The bytes that hold an index of whole elements without being cut: an element, a group, an entry.
size_t EncodingUnitBytes(EncodingSpec::Kind kind);

// The bytes of `elements` >= 0 elements. `fraction` counts for TOP_K only, where it is above 0 and
// at most 1: max(1, ceil(fraction * elements)) of them are sent.
size_t EncodedBytes(EncodingSpec::Kind kind, int64_t elements, double fraction);

// Writes EncodedBytes(kind, elements.size(), fraction) bytes to `destination`, which may be at any
// address. All kinds but TOP_K may be written in pieces: where a piece is a multiple of
// kInt8GroupElements, what follows goes behind its bytes. Elements that are not finite stay so, or
// make their INT8 group's scale a NaN: either way, a check of what was decoded will see it.
void Encode(EncodingSpec::Kind kind, absl::Span<const float> elements, double fraction,
            uint8_t* destination, InstructionSet set = BestInstructionSet());

// The elements that Encode has written to `bytes`, at any address. REQUIRES: the bytes are well
// formed for so many elements (FramePayload::Check); for kinds but TOP_K they may be a piece that
// begins and ends where Encode might have been cut.
void Decode(EncodingSpec::Kind kind, absl::Span<const uint8_t> bytes, absl::Span<float> elements,
            InstructionSet set = BestInstructionSet());

}  // namespace torchps
