#include "torchps/transport/frame_payload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/encoding_elements.h"
#include "torchps/transport/top_k.h"

namespace torchps {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

}  // namespace

void WriteAbsentTable(absl::Span<const ElementRun> runs, uint8_t* destination) {
  for (const ElementRun& run : runs) {
    const uint32_t numbers[] = {static_cast<uint32_t>(run.begin),
                                static_cast<uint32_t>(run.end - run.begin)};
    static_assert(sizeof(numbers) == kAbsentRunBytes);
    std::memcpy(destination, numbers, sizeof(numbers));
    destination += sizeof(numbers);
  }
}

absl::StatusOr<ElementRuns> ReadAbsentTable(absl::Span<const uint8_t> bytes, size_t max_runs) {
  if (bytes.size() % kAbsentRunBytes != 0 || bytes.size() > AbsentTableBytes(max_runs)) {
    return absl::InvalidArgumentError(absl::StrCat("a table of absent elements has ", bytes.size(),
                                                   " bytes; expected ", kAbsentRunBytes,
                                                   " for each of at most ", max_runs, " runs"));
  }
  ElementRuns runs;
  runs.reserve(bytes.size() / kAbsentRunBytes);
  for (size_t at = 0; at < bytes.size(); at += kAbsentRunBytes) {
    uint32_t numbers[2];
    std::memcpy(numbers, bytes.data() + at, sizeof(numbers));
    runs.push_back({numbers[0], int64_t{numbers[0]} + numbers[1]});
  }
  if (absl::Status checked = CheckRuns(runs, std::numeric_limits<int64_t>::max()); !checked.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a table of absent elements: ", checked.message()));
  }
  return runs;
}

namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "payloads are little-endian and are read in place");

// Number of elements decoded into the stack buffer at a time: exactly one INT8 group. 4 KiB leave
// space in the first-level cache for the memory that `visit` uses.
constexpr int64_t kBufferedElements = kInt8GroupElements;

constexpr size_t kLargestUnitBytes = sizeof(float) + kInt8GroupElements;

// Returns the number of elements in a piece of whole units. The last INT8 group may be shorter.
int64_t ElementsIn(EncodingSpec::Kind encoding, size_t bytes) {
  if (encoding != EncodingSpec::INT8) {
    return static_cast<int64_t>(bytes / EncodingUnitBytes(encoding));
  }
  const size_t groups = (bytes + kLargestUnitBytes - 1) / kLargestUnitBytes;
  return static_cast<int64_t>(bytes - groups * sizeof(float));
}

}  // namespace

FramePayload::FramePayload(std::vector<grpc::Slice> slices, size_t skipped_bytes,
                           EncodingSpec::Kind encoding)
    : slices_(std::move(slices)), skipped_bytes_(skipped_bytes), encoding_(encoding) {
  size_t bytes = 0;
  for (const grpc::Slice& slice : slices_) bytes += slice.size();
  TPS_CHECK(bytes >= skipped_bytes, "no more is skipped than there is");
  bytes_ = bytes - skipped_bytes;
}

template <typename Visit>
void FramePayload::ForEachPiece(Visit visit) const {
  const size_t unit = EncodingUnitBytes(encoding_);
  // Holds the first `split_bytes` bytes of a unit that spans slices.
  alignas(float) uint8_t split_unit[kLargestUnitBytes];
  size_t split_bytes = 0;
  size_t to_skip = skipped_bytes_;
  for (const grpc::Slice& slice : slices_) {
    const size_t skipped = std::min(to_skip, slice.size());
    to_skip -= skipped;
    auto bytes = absl::MakeConstSpan(slice.begin(), slice.size()).subspan(skipped);
    if (bytes.empty()) continue;
    if (split_bytes > 0) {
      const size_t taken = std::min(unit - split_bytes, bytes.size());
      std::memcpy(split_unit + split_bytes, bytes.data(), taken);
      bytes.remove_prefix(taken);
      split_bytes += taken;
      if (split_bytes < unit) continue;
      visit(absl::MakeConstSpan(split_unit, unit));
      split_bytes = 0;
    }
    split_bytes = bytes.size() % unit;
    bytes.remove_suffix(split_bytes);
    if (split_bytes > 0) std::memcpy(split_unit, bytes.end(), split_bytes);
    if (!bytes.empty()) visit(bytes);
  }
  if (split_bytes > 0) visit(absl::MakeConstSpan(split_unit, split_bytes));
}

absl::Status FramePayload::Check(int64_t elements) const {
  if (encoding_ == EncodingSpec::TOP_K) return CheckIndices(elements);
  const size_t expected = EncodedBytes(encoding_, elements, /*fraction=*/1);
  if (bytes_ != expected) {
    return absl::InvalidArgumentError(absl::StrCat(elements, " elements in ",
                                                   EncodingSpec::Kind_Name(encoding_), " take ",
                                                   expected, " bytes; the payload has ", bytes_));
  }
  return encoding_ == EncodingSpec::INT8 ? CheckScales() : absl::OkStatus();
}

absl::Status FramePayload::CheckScales() const {
  int64_t group = 0;
  absl::Status status;
  ForEachPiece([&](absl::Span<const uint8_t> piece) {
    for (size_t at = 0; at < piece.size(); at += kLargestUnitBytes, ++group) {
      float scale;
      std::memcpy(&scale, piece.data() + at, sizeof(scale));
      // The condition is written so that a NaN fails it.
      if (!(scale >= 0 && scale <= Int8Scale::kLargest) && status.ok()) {
        status = absl::InvalidArgumentError(
            absl::StrCat("the INT8 scale of elements ", group * kInt8GroupElements,
                         " and following is ", scale, "; expected 0 to ", Int8Scale::kLargest));
      }
    }
  });
  return status;
}

absl::Status FramePayload::CheckIndices(int64_t elements) const {
  if (bytes_ == 0 || bytes_ % kTopKEntryBytes != 0 ||
      bytes_ / kTopKEntryBytes > static_cast<uint64_t>(elements)) {
    return absl::InvalidArgumentError(absl::StrCat(elements, " elements in TOP_K take 1 to ",
                                                   elements, " entries of ", kTopKEntryBytes,
                                                   " bytes; the payload has ", bytes_, " bytes"));
  }
  int64_t entry = 0;
  int64_t lowest = 0;
  absl::Status status;
  ForEachPiece([&](absl::Span<const uint8_t> piece) {
    for (size_t at = 0; at < piece.size(); at += kTopKEntryBytes, ++entry) {
      const int64_t index = ReadTopKEntry(piece.data() + at).index;
      if ((index < lowest || index >= elements) && status.ok()) {
        status = absl::InvalidArgumentError(absl::StrCat("the TOP_K index of entry ", entry, " is ",
                                                         index, "; expected ", lowest, " to ",
                                                         elements - 1));
      }
      lowest = index + 1;
    }
  });
  return status;
}

int64_t FramePayload::FirstNonFinite() const {
  int64_t bad = -1;
  int64_t first = 0;
  // Check validated the INT8 scales, so all elements are finite.
  if (encoding_ == EncodingSpec::INT8) return bad;
  ForEachPiece([&](absl::Span<const uint8_t> piece) {
    if (bad >= 0) return;
    const int64_t count = ElementsIn(encoding_, piece.size());
    if (encoding_ == EncodingSpec::TOP_K) {
      for (int64_t i = 0; i < count && bad < 0; ++i) {
        const TopKEntry entry = ReadTopKEntry(piece.data() + i * kTopKEntryBytes);
        if (!std::isfinite(entry.value)) bad = entry.index;
      }
      return;
    }
    const int64_t index = encoding_ == EncodingSpec::FLOAT32
                              ? torchps::FirstNonFinite(piece.data(), count)
                              : FirstNonFiniteBfloat16(piece.data(), count);
    if (index >= 0) bad = first + index;
    first += count;
  });
  return bad;
}

void FramePayload::ForEachRun(
    int64_t elements,
    absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const {
  if (encoding_ == EncodingSpec::TOP_K) return VisitTopK(elements, visit);
  TPS_CHECK(bytes_ == EncodedBytes(encoding_, elements, 1), "the payload has been checked");
  if (encoding_ == EncodingSpec::FLOAT32) return VisitFloats(visit);
  float buffer[kBufferedElements];
  int64_t first = 0;
  const size_t buffered_bytes = EncodedBytes(encoding_, kBufferedElements, 1);
  ForEachPiece([&](absl::Span<const uint8_t> piece) {
    while (!piece.empty()) {
      const auto encoded = piece.subspan(0, buffered_bytes);
      const int64_t count = ElementsIn(encoding_, encoded.size());
      Decode(encoding_, encoded, absl::MakeSpan(buffer, count));
      visit(first, absl::MakeConstSpan(buffer, count));
      first += count;
      piece.remove_prefix(encoded.size());
    }
  });
}

void FramePayload::VisitFloats(
    absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const {
  int64_t first = 0;
  ForEachPiece([&](absl::Span<const uint8_t> piece) {
    const auto count = static_cast<int64_t>(piece.size() / sizeof(float));
    visit(first, absl::MakeConstSpan(reinterpret_cast<const float*>(piece.data()), count));
    first += count;
  });
}

void FramePayload::VisitTopK(
    int64_t elements,
    absl::FunctionRef<void(int64_t first_element, absl::Span<const float> run)> visit) const {
  float buffer[kBufferedElements] = {};
  // The buffer holds the elements from `first` on.
  int64_t first = 0;
  const auto pass_on_up_to = [&](int64_t index) {
    while (index - first >= kBufferedElements) {
      visit(first, absl::MakeConstSpan(buffer));
      std::fill_n(buffer, kBufferedElements, 0.0f);
      first += kBufferedElements;
    }
  };
  ForEachPiece([&](absl::Span<const uint8_t> piece) {
    for (size_t at = 0; at < piece.size(); at += kTopKEntryBytes) {
      const TopKEntry entry = ReadTopKEntry(piece.data() + at);
      TPS_CHECK(entry.index >= first && entry.index < elements, "the payload has been checked");
      pass_on_up_to(entry.index);
      buffer[entry.index - first] = entry.value;
    }
  });
  pass_on_up_to(elements);
  if (first < elements) visit(first, absl::MakeConstSpan(buffer, elements - first));
}

void FramePayload::CopyBytesTo(uint8_t* destination) const {
  size_t to_skip = skipped_bytes_;
  for (const grpc::Slice& slice : slices_) {
    const size_t skipped = std::min(to_skip, slice.size());
    to_skip -= skipped;
    const size_t bytes = slice.size() - skipped;
    if (bytes == 0) continue;
    std::memcpy(destination, slice.begin() + skipped, bytes);
    destination += bytes;
  }
}

void FramePayload::CopyTo(absl::Span<float> destination) const {
  const auto elements = static_cast<int64_t>(destination.size());
  if (encoding_ == EncodingSpec::TOP_K) {
    return ForEachRun(elements, [destination](int64_t first, absl::Span<const float> run) {
      std::copy(run.begin(), run.end(), destination.begin() + first);
    });
  }
  TPS_CHECK(bytes_ == EncodedBytes(encoding_, elements, 1), "the payload has been checked");
  int64_t first = 0;
  ForEachPiece([&](absl::Span<const uint8_t> piece) {
    const int64_t count = ElementsIn(encoding_, piece.size());
    Decode(encoding_, piece, destination.subspan(first, count));
    first += count;
  });
}

}  // namespace torchps
