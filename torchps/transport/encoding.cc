#include "torchps/transport/encoding.h"

#include <cstring>

#include "torchps/common/check.h"
#include "torchps/common/cpu/streaming_copy.h"
#include "torchps/transport/encoding_elements.h"
#include "torchps/transport/top_k.h"

namespace torchps {
namespace {

struct EncodeBfloat16 {
  [[gnu::always_inline]] static void Run(const float* __restrict elements,
                                         uint8_t* __restrict bytes, int64_t n) {
    const UnalignedUint32* const from = reinterpret_cast<const UnalignedUint32*>(elements);
    UnalignedUint16* const to = reinterpret_cast<UnalignedUint16*>(bytes);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint16_t>(Bfloat16::Of(from[i]));
  }
};

struct DecodeBfloat16 {
  [[gnu::always_inline]] static void Run(const uint8_t* __restrict bytes,
                                         float* __restrict elements, int64_t n) {
    const UnalignedUint16* const from = reinterpret_cast<const UnalignedUint16*>(bytes);
    UnalignedUint32* const to = reinterpret_cast<UnalignedUint32*>(elements);
    for (int64_t i = 0; i < n; ++i) to[i] = Bfloat16::In(from[i]);
  }
};

struct EncodeInt8 {
  [[gnu::always_inline]] static void Group(const float* __restrict from, uint8_t* __restrict to,
                                           int64_t n) {
    uint32_t largest = 0;
    const UnalignedUint32* const bits = reinterpret_cast<const UnalignedUint32*>(from);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = bits[i] & kMagnitudeBits;
      largest = magnitude > largest ? magnitude : largest;
    }
    const Int8Scale group(largest);
    const float scale = group.scale();
    std::memcpy(to, &scale, sizeof(scale));
    to += sizeof(scale);
    for (int64_t i = 0; i < n; ++i) {
      to[i] = static_cast<uint8_t>(GetBits(group.GetShiftedMultiple(from[i])));
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
    for (int64_t i = 0; i < n; ++i) to[i] = Int8Scale::In(scale, from[i]);
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

}  // namespace

size_t EncodingUnitBytes(EncodingSpec::Kind kind) {
  switch (kind) {
    case EncodingSpec::BFLOAT16:
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
      return count * sizeof(uint16_t);
    case EncodingSpec::INT8:
      return count + (count + kInt8GroupElements - 1) / kInt8GroupElements * sizeof(float);
    case EncodingSpec::TOP_K:
      return static_cast<size_t>(TopKOf(elements, fraction)) * kTopKEntryBytes;
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
    case EncodingSpec::INT8:
      return RunVectorised<EncodeInt8>(set, elements.data(), destination, count);
    case EncodingSpec::TOP_K:
      return EncodeTopK(elements, TopKOf(count, fraction), destination, set);
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
    case EncodingSpec::INT8:
      return RunVectorised<DecodeInt8>(set, bytes.data(), elements.data(), count);
    case EncodingSpec::TOP_K:
      return DecodeTopK(bytes, elements);
    default:
      std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(float));
  }
}

}  // namespace torchps
