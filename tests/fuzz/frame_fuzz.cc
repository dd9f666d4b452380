// Fuzzes the Push and Pull frame parsers, with frames cut into slices at any point, and the use of
// the payload.

#include <algorithm>
#include <cmath>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {
namespace {

grpc::ByteBuffer Cut(const uint8_t* data, size_t size, size_t step) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < size; at += step) {
    slices.emplace_back(data + at, std::min(step, size - at));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void Use(const FramePayload& payload, int64_t elements) {
  if (!payload.Check(elements).ok()) return;
  std::vector<float> values(elements);
  payload.CopyTo(absl::MakeSpan(values));
  int64_t visited = 0;
  payload.ForEachRun(elements, [&](int64_t first, absl::Span<const float> run) {
    FUZZ_CHECK(first == visited && !run.empty());
    visited += static_cast<int64_t>(run.size());
  });
  FUZZ_CHECK(visited == elements);
  if (payload.FirstNonFinite() < 0 && payload.encoding() != EncodingSpec::INT8) {
    FUZZ_CHECK(std::all_of(values.begin(), values.end(),
                           [](float value) { return std::isfinite(value); }));
  }
}

}  // namespace
}  // namespace torchps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  if (size < 2) return 0;
  const grpc::ByteBuffer frame = Cut(data + 2, size - 2, size_t{1} + data[0]);
  const int64_t elements = 1 + data[1];
  PushHeader push;
  PullHeader pull;
  FramePayload payload;
  if (ParsePushFrame(frame, &push, &payload).ok()) {
    FUZZ_CHECK(CheckRuns(push.absent, int64_t{1} << 33).ok());
    if (CheckRuns(push.absent, elements).ok()) {
      FUZZ_CHECK(RunsWithin(push.absent, 0, elements) == push.absent);
    }
    Use(payload, elements);
    Use(payload, static_cast<int64_t>(payload.bytes() / sizeof(float)));
  }
  if (ParsePullFrame(frame, &pull, &payload).ok()) Use(payload, elements);
  return 0;
}
