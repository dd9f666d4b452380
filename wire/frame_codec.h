#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/job.pb.h"
#include "wire/absent_table.h"
#include "wire/frame_payload.h"

// The frames of Push and Pull, written and read by hand so that no float is copied: a frame is one
// short header slice followed by slices that borrow the payload. The bytes are those of the
// messages PushFrame and PullFrame (proto/parameter_service.proto), byte for byte what Protobuf
// writes; docs/protocol.md shows one. All functions are thread-safe.

namespace torchps {

// All bytes of a frame in front of its payload, unknown fields included. Ours take at
// most 100; the rest is room for fields of later versions.
inline constexpr size_t kMaxFrameHeaderBytes = 256;

// The largest block a job may ask for (job.proto, wire.block_bytes).
inline constexpr size_t kMaxFramePayloadBytes = size_t{64} << 20;

// What a channel and a server must let through (gRPC's own limit is 4 MiB).
inline constexpr int kMaxFrameBytes =
    static_cast<int>(kMaxFrameHeaderBytes + kMaxAbsentTableBytes + kMaxFramePayloadBytes);

// The header fields of a PushFrame, with the meanings given there.
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
  // The weight of the gradient in the mean of its update: `loss_weight`, or where that is 0
  // `weight`.
  double mean_weight() const;
  // Sets `loss_weight`. A gradient of which nothing counts has the smallest weight there is.
  void SetLossWeight(double weight);

  // The block's elements that the gradient has nothing for: the table in front of the payload's
  // elements, of which there are none if these are all.
  ElementRuns absent;
};

// The header fields of a PullFrame, with the meanings given there.
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

// A frame that borrows `payload`, FLOAT32 elements or bytes that Encode (wire/encoding.h) has
// written as header.encoding says: gRPC reads it while it sends, so it must stay as it is until the
// frame's reference to `keep_alive` is gone (gRPC drops it on a thread of its own choosing when the
// bytes have left, or the call has ended). A caller that wants to use the memory again waits for
// the last reference; one whose memory outlives the channel may pass null.
// REQUIRES: `payload` has at most kMaxFramePayloadBytes, header.absent at most kMaxAbsentRuns.
grpc::ByteBuffer EncodePushFrame(const PushHeader& header, absl::Span<const float> payload,
                                 std::shared_ptr<const void> keep_alive);
grpc::ByteBuffer EncodePushFrame(const PushHeader& header, absl::Span<const uint8_t> payload,
                                 std::shared_ptr<const void> keep_alive);
grpc::ByteBuffer EncodePullFrame(const PullHeader& header, absl::Span<const float> payload,
                                 std::shared_ptr<const void> keep_alive);

// A frame that owns its payload, as a server has copied or encoded it out of a block under its
// lock. REQUIRES: `payload` has at most kMaxFramePayloadBytes.
grpc::ByteBuffer EncodePullFrame(const PullHeader& header, grpc::Slice payload);

// Reads a frame, cut into slices anywhere. `*payload`, without the table of absent elements, refers
// to the frame's memory and keeps it alive. Header fields may come in any order, unknown ones are
// skipped, missing ones are 0; the payload, where there is one, is the last field. INVALID_ARGUMENT
// says in one sentence what is wrong: not a Protobuf message, a field cut short, a value too large
// for its field, an encoding that this program does not know, bytes behind the payload, header or
// payload over its limit, a malformed table of absent elements. Whether the payload is well formed,
// FramePayload::Check tells a caller that knows its block. On an error `*header` and `*payload` are
// unspecified but valid.
absl::Status ParsePushFrame(const grpc::ByteBuffer& frame, PushHeader* header,
                            FramePayload* payload);
absl::Status ParsePullFrame(const grpc::ByteBuffer& frame, PullHeader* header,
                            FramePayload* payload);

}  // namespace torchps
