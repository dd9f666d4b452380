#include "worker/device/encoded_records.h"

#include "wire/encoding.h"

namespace torchps {
namespace {

// Aligns each verdict, so that a GPU reads whole words.
constexpr size_t kAlignment = 16;
static_assert(sizeof(GradientVerdict) % kAlignment == 0, "bytes are aligned as verdicts are");

}  // namespace

EncodedRecords::EncodedRecords(const BlockMap& map, const EncodingSpec& encoding)
    : encoding_(encoding.kind()), fraction_(encoding.fraction()) {
  for (const BlockRange& block : map.blocks()) {
    if (block.averaged) break;
    bytes_.push_back(EncodedBytes(encoding_, block.length, fraction_));
    const size_t padded = (bytes_.back() + kAlignment - 1) / kAlignment * kAlignment;
    begins_.push_back(begins_.back() + kVerdictFloats +
                      static_cast<int64_t>(padded / sizeof(float)));
  }
}

}  // namespace torchps
