#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "grpcpp/support/slice.h"
#include "torchps/common/element_runs.h"
#include "torchps/proto/job.pb.h"

// Table of the block elements that a gradient does not contain, encoded as bytes. For each run it
// holds the first element and the length, both as unsigned 32-bit little-endian integers
// (docs/protocol.md). All functions are thread-safe.

namespace torchps {

inline constexpr size_t kAbsentRunBytes = 8;

// Maximum number of runs. Keeps a forged run count from allocating much memory. Real models stay
// below this limit: only a block of 512 KiB or more, made of one-element tensors with every second
// tensor absent, would exceed it.
inline constexpr size_t kMaxAbsentRuns = size_t{1} << 16;
inline constexpr size_t kMaxAbsentTableBytes = kMaxAbsentRuns * kAbsentRunBytes;

inline size_t AbsentTableBytes(size_t runs) { return runs * kAbsentRunBytes; }

// Writes AbsentTableBytes(runs.size()) bytes to `destination`, which may be unaligned. REQUIRES:
// `runs` lies within a block of fewer than 2^32 elements.
void WriteAbsentTable(absl::Span<const ElementRun> runs, uint8_t* destination);

// Decodes `bytes` into runs. Returns INVALID_ARGUMENT, describing the fault, for an incomplete run,
// more than `max_runs` runs, an empty run, or a run that does not follow the previous run with a
// gap. Does not check against the block length; a caller that knows the block uses CheckRuns().
absl::StatusOr<ElementRuns> ReadAbsentTable(absl::Span<const uint8_t> bytes,
                                            size_t max_runs = kMaxAbsentRuns);

// The elements of a frame, decoded in place from the slices that gRPC received, without a copy.
// Slices may begin and end at any byte, even inside an element.
//
// The number of elements depends on the block, not on the payload. Callers must therefore look up
// the block and call Check first, and may read only if Check returns OK.
//
// Thread-compatible. Keeps the slices' memory alive during the lifetime of this object and of all
// copies. Copying is cheap because copies share the bytes.
class FramePayload {
 public:
  // Creates an empty payload.
  FramePayload() = default;

  // Creates a payload of the bytes of `slices`, in order, without the first `skipped_bytes` bytes.
  // `encoding` is the encoding of these bytes (docs/protocol.md). REQUIRES: the slices contain at
  // least `skipped_bytes` bytes.
  explicit FramePayload(std::vector<grpc::Slice> slices, size_t skipped_bytes = 0,
                        EncodingSpec::Kind encoding = EncodingSpec::FLOAT32);

  EncodingSpec::Kind encoding() const { return encoding_; }
  size_t bytes() const { return bytes_; }

  // Returns OK if the payload consists of `elements` well-formed elements. Otherwise returns
  // INVALID_ARGUMENT, naming the fault: the length, an INT8 scale, or a TOP_K index. Accepts
  // non-finite numbers; see FirstNonFinite.
  absl::Status Check(int64_t elements) const;

  // Returns the index of the first infinite or NaN element, or -1 if all elements are finite. Tests
  // the encoded form. REQUIRES: Check returned OK.
  int64_t FirstNonFinite() const;

  // Calls `visit` for consecutive runs of elements, in order and without gaps, with the index of
  // the run's first element. Runs are not empty and are valid only during the call. FLOAT32 runs
  // point into the slices at any byte address, so read them as UnalignedFloat
  // (torchps/common/cpu/streaming_copy.h). Runs of other encodings are decoded into a small stack
  // buffer that stays in the first-level cache. REQUIRES: Check(elements) is OK.
  void ForEachRun(
      int64_t elements,
      absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const;

  // Decodes all elements into `destination`. REQUIRES: Check(destination.size()) is OK.
  void CopyTo(absl::Span<float> destination) const;

  // Copies the encoded payload, bytes() bytes, to `destination`.
  void CopyBytesTo(uint8_t* destination) const;

 private:
  // Calls visit(piece) for consecutive contiguous pieces of the bytes, split only between encoding
  // units. The last unit may be shorter (an INT8 group). Units that span slices are assembled in a
  // stack buffer.
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
