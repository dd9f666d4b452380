#include "proto/encoding.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/check.h"
#include "common/unaligned.h"

namespace torchps {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr uint32_t kInfinity = 0x7f800000u;

[[gnu::always_inline]] inline uint32_t BitsOf(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

[[gnu::always_inline]] inline float FloatOf(uint32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// ------------------------------------------------------------------------------- 16-bit floats

struct EncodeBfloat16 {
  [[gnu::always_inline]] static void Run(const float* __restrict elements,
                                         uint8_t* __restrict bytes, int64_t n) {
    const UnalignedUint32* const from = reinterpret_cast<const UnalignedUint32*>(elements);
    UnalignedUint16* const to = reinterpret_cast<UnalignedUint16*>(bytes);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = from[i] & kMagnitude;
      // To nearest, ties to even; a carry out of the fraction raises the exponent, as it should.
      const uint32_t rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
      const uint32_t finite = rounded < 0x7f7f ? rounded : 0x7f7f;
      // A NaN stays one although its lower half goes.
      const uint32_t special = magnitude >> 16 | (magnitude > kInfinity ? 0x40 : 0);
      const uint32_t half = magnitude < kInfinity ? finite : special;
      to[i] = static_cast<uint16_t>(half | (from[i] >> 16 & 0x8000));
    }
  }
};

struct DecodeBfloat16 {
  [[gnu::always_inline]] static void Run(const uint8_t* __restrict bytes,
                                         float* __restrict elements, int64_t n) {
    const UnalignedUint16* const from = reinterpret_cast<const UnalignedUint16*>(bytes);
    UnalignedUint32* const to = reinterpret_cast<UnalignedUint32*>(elements);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint32_t>(from[i]) << 16;
  }
};

// IEEE 754 half precision: 5 bits of exponent with bias 15, 10 of fraction. Below 2^-14 numbers are
// multiples of 2^-24. Both ways go through integers, and through one sum of normal float32: faster
// than a loop of conversion instructions where those are missing, and the same everywhere.
constexpr uint32_t kBiasDifference = 127 - 15;
constexpr uint32_t kSmallestNormalHalf = (kBiasDifference + 1) << 23;  // 2^-14 as a float32

struct EncodeFloat16 {
  [[gnu::always_inline]] static void Run(const float* __restrict elements,
                                         uint8_t* __restrict bytes, int64_t n) {
    const UnalignedUint32* const from = reinterpret_cast<const UnalignedUint32*>(elements);
    UnalignedUint16* const to = reinterpret_cast<UnalignedUint16*>(bytes);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = from[i] & kMagnitude;
      const uint32_t rebiased = magnitude - (kBiasDifference << 23);
      const uint32_t normal = (rebiased + 0xfff + (magnitude >> 13 & 1)) >> 13;
      const uint32_t finite = normal < 0x7bff ? normal : 0x7bff;
      // The neighbours of 0.5 are 2^-24 apart: the addition rounds, and leaves the multiple.
      const uint32_t small = BitsOf(FloatOf(magnitude) + 0.5f) - 0x3f000000u;
      const uint32_t special = magnitude > kInfinity ? 0x7e00 : 0x7c00;
      const uint32_t number = magnitude < kSmallestNormalHalf ? small : finite;
      const uint32_t half = magnitude < kInfinity ? number : special;
      to[i] = static_cast<uint16_t>(half | (from[i] >> 16 & 0x8000));
    }
  }
};

struct DecodeFloat16 {
  [[gnu::always_inline]] static void Run(const uint8_t* __restrict bytes,
                                         float* __restrict elements, int64_t n) {
    const UnalignedUint16* const from = reinterpret_cast<const UnalignedUint16*>(bytes);
    UnalignedUint32* const to = reinterpret_cast<UnalignedUint32*>(elements);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = from[i] & 0x7fffu;
      const uint32_t shifted = magnitude << 13;
      const uint32_t normal = shifted + (kBiasDifference << 23);
      // 2^-14 (1 + fraction) - 2^-14: exact.
      const uint32_t small =
          BitsOf(FloatOf(shifted + kSmallestNormalHalf) - FloatOf(kSmallestNormalHalf));
      const uint32_t special = shifted + (2 * kBiasDifference << 23);
      const uint32_t number = magnitude < 0x400 ? small : normal;
      const uint32_t bits = magnitude < 0x7c00 ? number : special;
      to[i] = bits | static_cast<uint32_t>(from[i] & 0x8000) << 16;
    }
  }
};

// ---------------------------------------------------------------------------------------- INT8

// 1.5 * 2^23, whose neighbours are 1 apart: adding it rounds to a whole number, to nearest even,
// which then stands in the lowest bits.
constexpr float kRoundingShift = 12582912.0f;

struct EncodeInt8 {
  [[gnu::always_inline]] static void Group(const float* __restrict from, uint8_t* __restrict to,
                                           int64_t n) {
    // As integers the magnitudes of floats have the same order, and NaNs are above all.
    uint32_t largest = 0;
    const UnalignedUint32* const bits = reinterpret_cast<const UnalignedUint32*>(from);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = bits[i] & kMagnitude;
      largest = magnitude > largest ? magnitude : largest;
    }
    float scale = std::numeric_limits<float>::quiet_NaN();
    float inverse = 0;
    if (largest < kInfinity) {
      scale = FloatOf(largest) / 127.0f;
      scale = scale < kLargestInt8Scale ? scale : kLargestInt8Scale;
      // The inverse of a smaller one could be infinite; such a group is as good as zero.
      if (scale < std::numeric_limits<float>::min()) scale = 0;
      inverse = scale > 0 ? 1.0f / scale : 0.0f;
    }
    std::memcpy(to, &scale, sizeof(scale));
    to += sizeof(scale);
    for (int64_t i = 0; i < n; ++i) {
      float quotient = from[i] * inverse;
      quotient = quotient < 127.0f ? quotient : 127.0f;
      quotient = quotient > -127.0f ? quotient : -127.0f;
      to[i] = static_cast<uint8_t>(BitsOf(quotient + kRoundingShift));
    }
  }

  [[gnu::always_inline]] static void Run(const float* from, uint8_t* to, int64_t n) {
    for (int64_t i = 0; i < n; i += kInt8GroupElements) {
      const int64_t count = n - i < kInt8GroupElements ? n - i : kInt8GroupElements;
      Group(from + i, to, count);
      to += sizeof(float) + count;
    }
  }
};

struct DecodeInt8 {
  [[gnu::always_inline]] static void Group(float scale, const int8_t* __restrict from,
                                           float* __restrict to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = scale * static_cast<float>(from[i]);
  }

  [[gnu::always_inline]] static void Run(const uint8_t* from, float* to, int64_t n) {
    for (int64_t i = 0; i < n; i += kInt8GroupElements) {
      const int64_t count = n - i < kInt8GroupElements ? n - i : kInt8GroupElements;
      float scale;
      std::memcpy(&scale, from, sizeof(scale));
      Group(scale, reinterpret_cast<const int8_t*>(from + sizeof(scale)), to + i, count);
      from += sizeof(scale) + count;
    }
  }
};

// --------------------------------------------------------------------------------------- TOP_K

// Whether one of `n` magnitudes is at least `threshold`.
struct AnyAtLeast {
  [[gnu::always_inline]] static bool Run(const float* elements, int64_t n, uint32_t threshold) {
    const UnalignedUint32* const bits = reinterpret_cast<const UnalignedUint32*>(elements);
    uint32_t found = 0;
    for (int64_t i = 0; i < n; ++i) found |= (bits[i] & kMagnitude) >= threshold ? 1 : 0;
    return found != 0;
  }
};

// Elements that are looked at together for one that matters.
constexpr int64_t kScan = 256;

// Calls visit(index, magnitude) for the elements of a magnitude of at least `threshold`, ascending.
template <typename Visit>
void ForEachAtLeast(uint32_t threshold, absl::Span<const float> elements, InstructionSet set,
                    Visit visit) {
  const UnalignedUint32* const bits = reinterpret_cast<const UnalignedUint32*>(elements.data());
  const auto size = static_cast<int64_t>(elements.size());
  for (int64_t begin = 0; begin < size; begin += kScan) {
    const int64_t end = std::min(begin + kScan, size);
    if (!RunVectorised<AnyAtLeast>(set, elements.data() + begin, end - begin, threshold)) continue;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t magnitude = bits[i] & kMagnitude;
      if (magnitude >= threshold) visit(i, magnitude);
    }
  }
}

// The k largest magnitudes are those above `magnitude`, and `at` of those that are equal to it.
struct Cut {
  uint32_t magnitude = 0;
  int64_t at = 0;
};

// Finds the k-th largest magnitude digit by digit, from the highest: how many elements have the
// digits found so far and which one next is counted, and tells the next. Needs no memory but the
// counts. REQUIRES: 1 <= k <= elements.size().
Cut FindCut(absl::Span<const float> elements, int64_t k, InstructionSet set) {
  constexpr int kDigitBits[] = {11, 10, 10};
  std::array<int64_t, 1 << 11> counts;
  Cut cut;
  cut.at = k;
  int low_bits = 31;
  for (const int digit_bits : kDigitBits) {
    const int known_from = low_bits;
    low_bits -= digit_bits;
    counts.fill(0);
    ForEachAtLeast(cut.magnitude, elements, set, [&](int64_t, uint32_t magnitude) {
      if (magnitude >> known_from != cut.magnitude >> known_from) return;
      ++counts[magnitude >> low_bits & ((1u << digit_bits) - 1)];
    });
    int64_t digit = (int64_t{1} << digit_bits) - 1;
    while (counts[digit] < cut.at) cut.at -= counts[digit--];
    cut.magnitude |= static_cast<uint32_t>(digit) << low_bits;
  }
  return cut;
}

void EncodeTopK(absl::Span<const float> elements, int64_t k, uint8_t* to, InstructionSet set) {
  const Cut cut = FindCut(elements, k, set);
  int64_t at_cut = cut.at;
  ForEachAtLeast(cut.magnitude, elements, set, [&](int64_t i, uint32_t magnitude) {
    if (magnitude == cut.magnitude && at_cut-- <= 0) return;
    const auto index = static_cast<uint32_t>(i);
    std::memcpy(to, &index, sizeof(index));
    std::memcpy(to + sizeof(index), &elements[i], sizeof(float));
    to += kTopKEntryBytes;
  });
}

void DecodeTopK(absl::Span<const uint8_t> bytes, absl::Span<float> elements) {
  std::fill(elements.begin(), elements.end(), 0.0f);
  for (size_t at = 0; at < bytes.size(); at += kTopKEntryBytes) {
    const TopKEntry entry = ReadTopKEntry(bytes.data() + at);
    elements[entry.index] = entry.value;
  }
}

int64_t TopK(int64_t elements, double fraction) {
  const auto k = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(elements)));
  return std::min(std::max<int64_t>(k, 1), elements);
}

}  // namespace

TopKEntry ReadTopKEntry(const uint8_t* bytes) {
  TopKEntry entry;
  std::memcpy(&entry.index, bytes, sizeof(entry.index));
  std::memcpy(&entry.value, bytes + sizeof(entry.index), sizeof(entry.value));
  return entry;
}

size_t EncodingUnitBytes(EncodingSpec::Kind kind) {
  switch (kind) {
    case EncodingSpec::BFLOAT16:
    case EncodingSpec::FLOAT16:
      return sizeof(uint16_t);
    case EncodingSpec::INT8:
      return sizeof(float) + kInt8GroupElements;
    case EncodingSpec::TOP_K:
      return kTopKEntryBytes;
    default:
      return sizeof(float);
  }
}

size_t EncodedBytes(EncodingSpec::Kind kind, int64_t elements, double fraction) {
  const auto count = static_cast<size_t>(elements);
  switch (kind) {
    case EncodingSpec::BFLOAT16:
    case EncodingSpec::FLOAT16:
      return count * sizeof(uint16_t);
    case EncodingSpec::INT8:
      return count + (count + kInt8GroupElements - 1) / kInt8GroupElements * sizeof(float);
    case EncodingSpec::TOP_K:
      return static_cast<size_t>(TopK(elements, fraction)) * kTopKEntryBytes;
    default:
      return count * sizeof(float);
  }
}

void Encode(EncodingSpec::Kind kind, absl::Span<const float> elements, double fraction,
            uint8_t* destination, InstructionSet set) {
  if (elements.empty()) return;
  const auto count = static_cast<int64_t>(elements.size());
  switch (kind) {
    case EncodingSpec::BFLOAT16:
      return RunVectorised<EncodeBfloat16>(set, elements.data(), destination, count);
    case EncodingSpec::FLOAT16:
      return RunVectorised<EncodeFloat16>(set, elements.data(), destination, count);
    case EncodingSpec::INT8:
      return RunVectorised<EncodeInt8>(set, elements.data(), destination, count);
    case EncodingSpec::TOP_K:
      return EncodeTopK(elements, TopK(count, fraction), destination, set);
    default:
      std::memcpy(destination, elements.data(), elements.size() * sizeof(float));
  }
}

void Decode(EncodingSpec::Kind kind, absl::Span<const uint8_t> bytes, absl::Span<float> elements,
            InstructionSet set) {
  if (elements.empty()) return;
  const auto count = static_cast<int64_t>(elements.size());
  TPS_DCHECK(kind == EncodingSpec::TOP_K || bytes.size() == EncodedBytes(kind, count, 1),
             "as many bytes as the elements need");
  switch (kind) {
    case EncodingSpec::BFLOAT16:
      return RunVectorised<DecodeBfloat16>(set, bytes.data(), elements.data(), count);
    case EncodingSpec::FLOAT16:
      return RunVectorised<DecodeFloat16>(set, bytes.data(), elements.data(), count);
    case EncodingSpec::INT8:
      return RunVectorised<DecodeInt8>(set, bytes.data(), elements.data(), count);
    case EncodingSpec::TOP_K:
      return DecodeTopK(bytes, elements);
    default:
      std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(float));
  }
}

}  // namespace torchps
