#include "torchps/transport/residual_encoding.h"

#include <algorithm>
#include <cstring>

#include "torchps/common/check.h"
#include "torchps/common/cpu/streaming_copy.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/encoding_elements.h"
#include "torchps/transport/top_k.h"

namespace torchps {
namespace {

// The loops read both arrays from memory. Explicit prefetching keeps more loads in flight than the
// hardware prefetcher. Each prefetch covers one strip of kStrip elements, which is 8 cache lines of
// each array, at a distance of kAhead elements.
constexpr int64_t kStrip = 128;
constexpr int64_t kAhead = 512;
// The prefetch distance for INT8, in elements. The first of the two passes over an INT8 group reads
// from memory. The second pass reads from the cache, so it prefetches the next group.
constexpr int64_t kGroupAhead = kInt8GroupElements + 256;

template <int64_t kElementsAhead>
[[gnu::always_inline]] inline void PrefetchStrip(const float* strip) {
  // `ahead` is an integer, not a pointer, because the address may lie past the end of the array.
  // Prefetching such an address is harmless.
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(strip) + kElementsAhead * sizeof(float);
  for (size_t byte = 0; byte < kStrip * sizeof(float); byte += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + byte));
  }
}

struct KeepBfloat16 {
  // Returns the encoded element.
  [[gnu::always_inline]] static uint16_t Element(float gradient, float& residual) {
    residual += gradient;
    return static_cast<uint16_t>(Bfloat16::Take(residual));
  }

  [[gnu::always_inline]] static void Run(const float* __restrict gradient,
                                         float* __restrict residual, uint8_t* __restrict bytes,
                                         int64_t n) {
    UnalignedUint16* const to = reinterpret_cast<UnalignedUint16*>(bytes);
    const int64_t whole_strips = n - n % kStrip;
    for (int64_t i = 0; i < whole_strips; i += kStrip) {
      PrefetchStrip<kAhead>(gradient + i);
      PrefetchStrip<kAhead>(residual + i);
      for (int64_t j = i; j < i + kStrip; ++j) to[j] = Element(gradient[j], residual[j]);
    }
    for (int64_t i = whole_strips; i < n; ++i) to[i] = Element(gradient[i], residual[i]);
  }
};

struct KeepInt8 {
  // Passes over the group twice, because the scale is only known after the first pass. The second
  // pass reads from the first-level cache.
  [[gnu::always_inline]] static void Group(const float* __restrict gradient,
                                           float* __restrict residual, uint8_t* __restrict to,
                                           int64_t n) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      residual[i] += gradient[i];
      const uint32_t magnitude = GetMagnitude(residual[i]);
      largest = magnitude > largest ? magnitude : largest;
    }
    const Int8Scale group(largest);
    const float scale = group.scale();
    std::memcpy(to, &scale, sizeof(scale));
    to += sizeof(scale);
    const int64_t whole_strips = n - n % kStrip;
    for (int64_t i = 0; i < whole_strips; i += kStrip) {
      PrefetchStrip<kGroupAhead>(gradient + i);
      PrefetchStrip<kGroupAhead>(residual + i);
      for (int64_t j = i; j < i + kStrip; ++j)
        to[j] = static_cast<uint8_t>(group.Take(residual[j]));
    }
    for (int64_t i = whole_strips; i < n; ++i)
      to[i] = static_cast<uint8_t>(group.Take(residual[i]));
  }

  [[gnu::always_inline]] static void Run(const float* gradient, float* residual, uint8_t* to,
                                         int64_t n) {
    for (int64_t i = 0; i < n; i += kInt8GroupElements) {
      const int64_t count = n - i < kInt8GroupElements ? n - i : kInt8GroupElements;
      Group(gradient + i, residual + i, to, count);
      to += sizeof(float) + count;
    }
  }
};

struct AddStrips {
  [[gnu::always_inline]] static void Run(const float* __restrict gradient,
                                         float* __restrict residual, int64_t n) {
    const int64_t whole_strips = n - n % kStrip;
    for (int64_t i = 0; i < whole_strips; i += kStrip) {
      PrefetchStrip<kAhead>(gradient + i);
      PrefetchStrip<kAhead>(residual + i);
      for (int64_t j = i; j < i + kStrip; ++j) residual[j] += gradient[j];
    }
    for (int64_t i = whole_strips; i < n; ++i) residual[i] += gradient[i];
  }
};

void KeepTopK(absl::Span<const float> gradient, int64_t k, absl::Span<float> residual,
              uint8_t* destination, InstructionSet set) {
  RunVectorised<AddStrips>(set, gradient.data(), residual.data(),
                           static_cast<int64_t>(residual.size()));
  EncodeTopK(residual, k, destination, set);
  for (int64_t i = 0; i < k; ++i) {
    residual[ReadTopKEntry(destination + i * kTopKEntryBytes).index] = 0;
  }
}

}  // namespace

void EncodeKeepingRest(EncodingSpec::Kind kind, absl::Span<const float> gradient, double fraction,
                       absl::Span<float> residual, uint8_t* destination, InstructionSet set) {
  TPS_CHECK(gradient.size() == residual.size(), "a gradient of another length than its residual");
  if (gradient.empty()) return;
  const auto count = static_cast<int64_t>(gradient.size());
  switch (kind) {
    case EncodingSpec::BFLOAT16:
      return RunVectorised<KeepBfloat16>(set, gradient.data(), residual.data(), destination, count);
    case EncodingSpec::INT8:
      return RunVectorised<KeepInt8>(set, gradient.data(), residual.data(), destination, count);
    case EncodingSpec::TOP_K:
      return KeepTopK(gradient, TopKOf(count, fraction), residual, destination, set);
    default:
      TPS_CHECK(false, "float32 loses nothing");
  }
}

}  // namespace torchps
