#include "proto/frame_payload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace torchps {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "payloads are little-endian and are read in place");

// Elements that go through the stack at a time: 4 KiB stay in the first-level cache beside
// whatever `visit` reads and writes.
constexpr size_t kBufferedFloats = 1024;

bool IsAligned(const uint8_t* bytes) {
  return reinterpret_cast<uintptr_t>(bytes) % alignof(float) == 0;
}

}  // namespace

FramePayload::FramePayload(std::vector<grpc::Slice> slices, size_t skipped_bytes)
    : slices_(std::move(slices)), skipped_bytes_(skipped_bytes) {
  size_t bytes = 0;
  for (const grpc::Slice& slice : slices_) bytes += slice.size();
  TPS_CHECK(bytes >= skipped_bytes && (bytes - skipped_bytes) % sizeof(float) == 0,
            "a payload is whole float32 elements");
  floats_ = static_cast<int64_t>((bytes - skipped_bytes) / sizeof(float));
}

absl::Span<const uint8_t> FramePayload::Bytes(size_t i, size_t& to_skip) const {
  const size_t skipped = std::min(to_skip, slices_[i].size());
  to_skip -= skipped;
  return absl::MakeConstSpan(slices_[i].begin(), slices_[i].size()).subspan(skipped);
}

void FramePayload::ForEachRun(
    absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const {
  float buffer[kBufferedFloats];
  // An element whose first `split_bytes` bytes were the last of earlier slices.
  float split_element;
  size_t split_bytes = 0;
  int64_t first = 0;
  size_t to_skip = skipped_bytes_;
  for (size_t i = 0; i < slices_.size(); ++i) {
    absl::Span<const uint8_t> bytes = Bytes(i, to_skip);
    if (bytes.empty()) continue;
    if (split_bytes > 0) {
      const size_t taken = std::min(sizeof(float) - split_bytes, bytes.size());
      std::memcpy(reinterpret_cast<uint8_t*>(&split_element) + split_bytes, bytes.data(), taken);
      bytes.remove_prefix(taken);
      split_bytes += taken;
      if (split_bytes < sizeof(float)) continue;
      visit(first++, absl::MakeConstSpan(&split_element, 1));
      split_bytes = 0;
    }
    if (IsAligned(bytes.data()) && bytes.size() >= sizeof(float)) {
      const size_t count = bytes.size() / sizeof(float);
      visit(first, absl::MakeConstSpan(reinterpret_cast<const float*>(bytes.data()), count));
      first += static_cast<int64_t>(count);
      bytes.remove_prefix(count * sizeof(float));
    }
    while (bytes.size() >= sizeof(float)) {
      const size_t count = std::min(bytes.size() / sizeof(float), kBufferedFloats);
      std::memcpy(buffer, bytes.data(), count * sizeof(float));
      visit(first, absl::MakeConstSpan(buffer, count));
      first += static_cast<int64_t>(count);
      bytes.remove_prefix(count * sizeof(float));
    }
    if (!bytes.empty()) {
      split_bytes = bytes.size();
      std::memcpy(&split_element, bytes.data(), split_bytes);
    }
  }
}

void FramePayload::CopyTo(float* destination) const {
  auto* next = reinterpret_cast<uint8_t*>(destination);
  size_t to_skip = skipped_bytes_;
  for (size_t i = 0; i < slices_.size(); ++i) {
    const absl::Span<const uint8_t> bytes = Bytes(i, to_skip);
    if (bytes.empty()) continue;
    std::memcpy(next, bytes.data(), bytes.size());
    next += bytes.size();
  }
}

}  // namespace torchps
