#include "data/tensor_dataset.h"

#include "common/check.h"
#include "data/fingerprint.h"

namespace torchps {

TensorDataset::TensorDataset(torch::Tensor input, torch::Tensor target,
                             std::vector<torch::Tensor> more_inputs,
                             std::vector<torch::Tensor> more_targets)
    : samples_{std::move(input), std::move(target), std::move(more_inputs),
               std::move(more_targets)} {
  const auto fits = [this](const torch::Tensor& tensor) {
    return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == samples_.input.size(0);
  };
  TPS_CHECK(fits(samples_.input) && (!samples_.target.defined() || fits(samples_.target)),
            "a TensorDataset's tensors have a row for each sample");
  for (const auto* more : {&samples_.more_inputs, &samples_.more_targets}) {
    for (const torch::Tensor& tensor : *more) {
      TPS_CHECK(fits(tensor), "a TensorDataset's tensors have a row for each sample");
    }
  }
}

absl::StatusOr<Batch> TensorDataset::Get(absl::Span<const int64_t> indices) const {
  const torch::Tensor rows = IndexTensor(indices);
  Batch batch{samples_.input.index_select(0, rows), {}};
  if (samples_.target.defined()) batch.target = samples_.target.index_select(0, rows);
  for (const torch::Tensor& tensor : samples_.more_inputs) {
    batch.more_inputs.push_back(tensor.index_select(0, rows));
  }
  for (const torch::Tensor& tensor : samples_.more_targets) {
    batch.more_targets.push_back(tensor.index_select(0, rows));
  }
  return batch;
}

uint32_t TensorDataset::Fingerprint() const {
  return FingerprintOfSamples(*this, Fingerprinted::kWholeNumbers);
}

}  // namespace torchps
