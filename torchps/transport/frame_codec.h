#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "torchps/common/element_runs.h"
#include "torchps/proto/job.pb.h"
#include "torchps/transport/frame_payload.h"

// Hand-written codec for the frames of Push and Pull, which avoids copying the floats. A frame
// consists of a short header slice followed by slices that borrow the payload. The bytes are
// identical to those that Protobuf writes for PushFrame and PullFrame
// (torchps/proto/parameter_service.proto); docs/protocol.md shows an example. All functions are
// thread-safe.

namespace torchps {

// Maximum size of the fields in front of the payload, including unknown fields. Current headers
// need at most 100 bytes; the rest is reserved for later versions.
inline constexpr size_t kMaxFrameHeaderBytes = 256;

// Largest block that a job may configure (job.proto, wire.block_bytes).
inline constexpr size_t kMaxFramePayloadBytes = size_t{64} << 20;

// Message size limit for channels and servers (gRPC's default is 4 MiB).
inline constexpr int kMaxFrameBytes =
    static_cast<int>(kMaxFrameHeaderBytes + kMaxAbsentTableBytes + kMaxFramePayloadBytes);

// The header fields of PushFrame; parameter_service.proto documents them.
struct PushHeader {
  int32_t slot = 0;
  uint64_t incarnation = 0;
  int64_t step = 0;
  uint32_t block = 0;
  int64_t base_version = 0;
  uint64_t server_incarnation = 0;
  uint32_t weight = 0;
  uint32_t share = 0;
  uint64_t loss_weight = 0;
  uint32_t block_count = 0;
  EncodingSpec::Kind encoding = EncodingSpec::FLOAT32;
  bool withheld = false;
  uint32_t shared_blocks = 0;
  uint32_t shared_buffer = 0;
  uint32_t progress = 0;
  bool part = false;
  // Returns the gradient's weight in the mean of an update: `loss_weight`, or `weight` if
  // `loss_weight` is 0.
  double mean_weight() const;
  // Sets `loss_weight`. A `weight` of 0, from a gradient without any counted loss, becomes the
  // smallest nonzero `loss_weight`.
  void SetLossWeight(double weight);

  // The block elements that the gradient does not contain. They are encoded as a table in front of
  // the payload's elements. If the table covers the whole block, no elements follow.
  ElementRuns absent;
};

// The header fields of PullFrame; parameter_service.proto documents them.
struct PullHeader {
  uint32_t block = 0;
  int64_t version = 0;
  uint32_t block_count = 0;
  int64_t min_clock = 0;
  uint64_t parked_us = 0;
  EncodingSpec::Kind encoding = EncodingSpec::FLOAT32;
  bool unchanged = false;
  bool shared = false;
};

// Encode a frame that borrows `payload`: FLOAT32 elements, or bytes that Encode
// (torchps/transport/encoding.h) wrote in header.encoding. gRPC reads the payload while sending, so
// the payload must stay unchanged until the frame releases its reference to `keep_alive`. gRPC
// releases the reference on any of its threads, after sending the bytes or when the call ends. To
// reuse the memory, callers wait for the last reference. If the memory outlives the channel,
// `keep_alive` may be null. REQUIRES: `payload` is at most kMaxFramePayloadBytes long,
// header.absent at most kMaxAbsentRuns.
grpc::ByteBuffer EncodePushFrame(const PushHeader& header, absl::Span<const float> payload,
                                 std::shared_ptr<const void> keep_alive);
grpc::ByteBuffer EncodePushFrame(const PushHeader& header, absl::Span<const uint8_t> payload,
                                 std::shared_ptr<const void> keep_alive);
grpc::ByteBuffer EncodePullFrame(const PullHeader& header, absl::Span<const float> payload,
                                 std::shared_ptr<const void> keep_alive);

// Encodes a frame that owns `payload`. The server copies or encodes a block into `payload` while it
// holds the block's lock. REQUIRES: `payload` is at most kMaxFramePayloadBytes long.
grpc::ByteBuffer EncodePullFrame(const PullHeader& header, grpc::Slice payload);

// Parse a frame, which may be split into slices at any byte. `*payload` excludes the table of
// absent elements, refers to the frame's memory and keeps it alive. Header fields may appear in any
// order; unknown fields are skipped, and missing fields are 0. The payload, if present, must be the
// last field.
//
// Return INVALID_ARGUMENT, describing the fault in one sentence, for: bytes that are not a Protobuf
// message, a truncated field, a value too large for the field, an unknown encoding, bytes behind
// the payload, a header or payload above its size limit, or a malformed table of absent elements.
// On error `*header` and `*payload` are unspecified but valid. The payload bytes are not checked;
// callers that know the block use FramePayload::Check.
absl::Status ParsePushFrame(const grpc::ByteBuffer& frame, PushHeader* header,
                            FramePayload* payload);
absl::Status ParsePullFrame(const grpc::ByteBuffer& frame, PullHeader* header,
                            FramePayload* payload);

}  // namespace torchps
