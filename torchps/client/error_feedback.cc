#include "torchps/client/error_feedback.h"

#include <algorithm>

#include "torchps/common/check.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/residual_encoding.h"
#include "torchps/transport/top_k.h"

namespace torchps {
namespace {

struct AddLoop {
  [[gnu::always_inline]] static void Run(const float* __restrict terms, float* __restrict sums,
                                         int64_t n) {
    for (int64_t i = 0; i < n; ++i) sums[i] += terms[i];
  }
};

void Add(absl::Span<const float> terms, absl::Span<float> sums) {
  RunVectorised<AddLoop>(BestInstructionSet(), terms.data(), sums.data(),
                         static_cast<int64_t>(sums.size()));
}

// Calls visit(first element, elements, first byte, bytes) for pieces of a block. Each piece can be
// encoded separately and fits into the L1 cache.
template <typename Visit>
void ForEachPiece(EncodingSpec::Kind encoding, size_t elements, Visit visit) {
  size_t at = 0;
  for (size_t begin = 0; begin < elements; begin += kInt8GroupElements) {
    const size_t length = std::min<size_t>(kInt8GroupElements, elements - begin);
    const size_t bytes = EncodedBytes(encoding, static_cast<int64_t>(length), /*fraction=*/1);
    visit(begin, length, at, bytes);
    at += bytes;
  }
}

int64_t TrainedElements(const std::vector<BlockRange>& blocks) {
  int64_t elements = 0;
  for (const BlockRange& block : blocks) {
    if (!block.averaged) elements = std::max(elements, block.offset + block.length);
  }
  return elements;
}

}  // namespace

ErrorFeedback::ErrorFeedback(const BlockMap& block_map, const EncodingSpec& encoding)
    : blocks_(block_map.blocks()),
      encoding_(encoding.kind()),
      fraction_(encoding.fraction()),
      residual_(TrainedElements(blocks_)),
      sent_(blocks_.size()) {
  TPS_CHECK(encoding_ != EncodingSpec::FLOAT32, "float32 loses nothing");
  for (const BlockRange& block : blocks_) {
    if (block.averaged) continue;
    sent_[block.id].bytes = AlignedArray<uint8_t>(EncodedBytes(encoding_, block.length, fraction_));
  }
}

absl::Span<float> ErrorFeedback::GetResidual(BlockId block) {
  TPS_CHECK(!blocks_[block].averaged, "averaged values travel as they are");
  return absl::MakeSpan(residual_).subspan(blocks_[block].offset, blocks_[block].length);
}

absl::Span<const uint8_t> ErrorFeedback::Encode(BlockId block, Step step,
                                                absl::Span<const float> gradient,
                                                absl::Span<const ElementRun> absent) {
  const absl::Span<float> residual = GetResidual(block);
  TPS_CHECK(gradient.size() == residual.size(), "a gradient of another length than its block");
  Sent& sent = sent_[block];
  if (sent.step == step) return sent.bytes;
  sent.step = step;
  sent.taken_back = false;
  std::vector<float> kept;
  for (const ElementRun& run : absent) {
    const auto begin = residual.begin() + run.begin;
    const auto end = residual.begin() + run.end;
    kept.insert(kept.end(), begin, end);
    std::fill(begin, end, 0.0f);
  }
  EncodeKeepingRest(encoding_, gradient, fraction_, residual, sent.bytes.data());
  auto next = kept.begin();
  for (const ElementRun& run : absent) {
    const auto end = next + (run.end - run.begin);
    std::copy(next, end, residual.begin() + run.begin);
    next = end;
  }
  return sent.bytes;
}

void ErrorFeedback::TakeBack(BlockId block, Step step) {
  if (blocks_[block].averaged) return;
  Sent& sent = sent_[block];
  if (sent.step != step || sent.taken_back) return;
  sent.taken_back = true;
  const absl::Span<float> residual = GetResidual(block);
  const uint8_t* const bytes = sent.bytes.data();
  if (encoding_ == EncodingSpec::TOP_K) {
    for (size_t at = 0; at < sent.bytes.size(); at += kTopKEntryBytes) {
      const TopKEntry entry = ReadTopKEntry(bytes + at);
      residual[entry.index] += entry.value;
    }
    return;
  }
  ForEachPiece(encoding_, residual.size(),
               [&](size_t begin, size_t length, size_t at, size_t piece_bytes) {
                 float decoded[kInt8GroupElements];
                 Decode(encoding_, absl::MakeConstSpan(bytes + at, piece_bytes),
                        absl::MakeSpan(decoded, length));
                 Add(absl::MakeConstSpan(decoded, length), residual.subspan(begin, length));
               });
}

}  // namespace torchps
