#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"

namespace torchps {

// The float32 elements of one frame, read where gRPC received them: references to its slices, not
// a copy. Slices begin and end at any byte, also inside an element.
//
// Thread-compatible. Keeps the slices' memory alive for as long as it, or a copy of it, lives. A
// copy is cheap: it refers to the same bytes.
class FramePayload {
 public:
  // No elements.
  FramePayload() = default;

  // The bytes of `slices`, in order, without the first `skipped_bytes` of them: little-endian
  // float32. REQUIRES: the bytes left over are a multiple of 4.
  explicit FramePayload(std::vector<grpc::Slice> slices, size_t skipped_bytes = 0);

  // Number of elements.
  int64_t floats() const { return floats_; }

  // Calls `visit` with consecutive runs of elements, in order and without gaps, and with the index
  // of each run's first element. A run is the slice's own memory where that is aligned; elements
  // of a misaligned slice, or split between two, come through a small buffer on the stack. A run
  // is valid during its call only, and never empty.
  void ForEachRun(
      absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const;

  // Writes all floats() elements to `destination`.
  void CopyTo(float* destination) const;

 private:
  // What counts of slice i, that is without the bytes skipped.
  absl::Span<const uint8_t> Bytes(size_t i, size_t& to_skip) const;

  std::vector<grpc::Slice> slices_;
  size_t skipped_bytes_ = 0;
  int64_t floats_ = 0;
};

}  // namespace torchps
