#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"
#include "proto/job.pb.h"

namespace torchps {

// The elements of one frame, read and decoded where gRPC received them: references to its slices,
// not a copy. Slices begin and end at any byte, also inside an element.
//
// How many elements there are is known from the block, not from the payload: a caller that has
// found the block calls Check first, and reads when that is OK.
//
// Thread-compatible. Keeps the slices' memory alive for as long as it, or a copy of it, lives. A
// copy is cheap: it refers to the same bytes.
class FramePayload {
 public:
  // No elements.
  FramePayload() = default;

  // The bytes of `slices`, in order, without the first `skipped_bytes` of them, encoded as
  // docs/protocol.md says. REQUIRES: there are so many bytes to skip.
  explicit FramePayload(std::vector<grpc::Slice> slices, size_t skipped_bytes = 0,
                        EncodingSpec::Kind encoding = EncodingSpec::FLOAT32);

  EncodingSpec::Kind encoding() const { return encoding_; }
  size_t bytes() const { return bytes_; }

  // Whether the payload is `elements` elements, well formed. INVALID_ARGUMENT says what is not: the
  // length, an INT8 scale, a TOP_K index. Numbers that are not finite pass; see FirstNonFinite.
  absl::Status Check(int64_t elements) const;

  // Index of the first element that is infinite or not a number, -1 if all are finite, judged by
  // the encoded form. REQUIRES: Check has passed.
  int64_t FirstNonFinite() const;

  // Calls `visit` with consecutive runs of elements, in order and without gaps, and with the index
  // of each run's first element. A run of FLOAT32 is the slice's own memory, at any byte address
  // (read it through common/cpu/unaligned.h); everything else is decoded into a small buffer on the
  // stack, which stays in the first-level cache. A run is valid during its call only, and never
  // empty. REQUIRES: Check(elements) is OK.
  void ForEachRun(
      int64_t elements,
      absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const;

  // Writes all elements to `destination`. REQUIRES: Check(destination.size()) is OK.
  void CopyTo(absl::Span<float> destination) const;

  // Writes the payload to `destination` as it came, encoded: bytes() bytes.
  void CopyBytesTo(uint8_t* destination) const;

 private:
  // Calls visit(piece) with consecutive contiguous pieces of the bytes, cut between units of the
  // encoding only; the very last unit may be shorter (an INT8 group). Units that slices cut are put
  // together in a buffer on the stack.
  template <typename Visit>
  void ForEachPiece(Visit visit) const;

  absl::Status CheckScales() const;
  absl::Status CheckIndices(int64_t elements) const;

  void VisitFloats(
      absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const;
  void VisitTopK(
      int64_t elements,
      absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const;

  std::vector<grpc::Slice> slices_;
  size_t skipped_bytes_ = 0;
  size_t bytes_ = 0;
  EncodingSpec::Kind encoding_ = EncodingSpec::FLOAT32;
};

}  // namespace torchps
