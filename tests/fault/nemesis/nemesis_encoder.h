#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/check.h"
#include "torchps/common/element_runs.h"
#include "torchps/proto/job.pb.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/residual_encoding.h"
#include "torchps/worker/device/encoded_outbox.h"

namespace torchps {

// Encodes gradients on a device made of host memory, in place of a GPU's kernels. Encodes at once,
// with the host's code. Requires a module that reaches all parameters. Not thread-safe.
class NemesisEncoder final : public BlockEncoder {
 public:
  // Shares the memory of `gradients`.
  NemesisEncoder(const torch::Tensor& gradients, const BlockMap& map, const EncodingSpec& encoding)
      : gradients_(gradients),
        map_(map),
        records_(map, encoding),
        memory_(static_cast<size_t>(records_.size()) / 2 + 1),
        residual_(static_cast<size_t>(gradients.numel())) {}

  const EncodedRecords& records() const override { return records_; }
  absl::Span<const float> memory() const override {
    return {reinterpret_cast<const float*>(memory_.data()), static_cast<size_t>(records_.size())};
  }

  absl::Status Encode(BlockId id, bool looks, absl::Span<const ElementRun> absent) override {
    TPS_CHECK(absent.empty(), "the module did not reach a layer");
    const BlockRange& block = map_.blocks()[id];
    const absl::Span<const float> gradient(gradients_.data_ptr<float>() + block.offset,
                                           static_cast<size_t>(block.length));
    float* const record = Record(id);
    if (looks) {
      const bool finite = std::all_of(gradient.begin(), gradient.end(),
                                      [](float element) { return std::isfinite(element); });
      EncodedRecords::GetVerdict(record)->finite = finite ? 1 : 0;
      if (!finite) return absl::OkStatus();
    }
    EncodeKeepingRest(records_.encoding(), gradient, records_.fraction(), GetResidual(block),
                      EncodedRecords::GetBytes(record));
    return absl::OkStatus();
  }

  absl::Status TakeBack(BlockId id) override {
    const BlockRange& block = map_.blocks()[id];
    std::vector<float> sent(static_cast<size_t>(block.length));
    Decode(records_.encoding(), {EncodedRecords::GetBytes(Record(id)), records_.bytes(id)},
           absl::MakeSpan(sent));
    const absl::Span<float> residual = GetResidual(block);
    for (size_t i = 0; i < sent.size(); ++i) residual[i] += sent[i];
    return absl::OkStatus();
  }

 private:
  float* Record(BlockId id) {
    return reinterpret_cast<float*>(memory_.data()) + records_.begin(id);
  }
  absl::Span<float> GetResidual(const BlockRange& block) {
    return absl::MakeSpan(residual_).subspan(static_cast<size_t>(block.offset),
                                             static_cast<size_t>(block.length));
  }

  const torch::Tensor gradients_;
  const BlockMap map_;
  const EncodedRecords records_;
  std::vector<double> memory_;  // records are aligned for doubles
  std::vector<float> residual_;
};

}  // namespace torchps
