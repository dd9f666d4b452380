#include "worker/feed/fetch_batch.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

absl::Status CheckRows(const std::string& name, const torch::Tensor& tensor, int64_t rows) {
  const auto got = [&](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("the dataset was asked for ", rows,
                                                   " samples, and the batch's ", name, words...));
  };
  if (!tensor.defined()) return got(" is an undefined tensor");
  if (tensor.dim() == 0) return got(" is a scalar; expected a row for each sample");
  if (tensor.size(0) != rows) return got(" has ", tensor.size(0), " rows");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Batch> FetchBatch(const Dataset& dataset, absl::Span<const int64_t> indices) {
  absl::StatusOr<Batch> batch = dataset.Get(indices);
  if (!batch.ok()) return batch;
  const auto rows = static_cast<int64_t>(indices.size());
  absl::Status status = CheckRows("input", batch->input, rows);
  // Some objectives need only the input.
  if (batch->target.defined()) status.Update(CheckRows("target", batch->target, rows));
  for (const torch::Tensor& tensor : batch->more_inputs) {
    status.Update(CheckRows("more_inputs", tensor, rows));
  }
  for (const torch::Tensor& tensor : batch->more_targets) {
    status.Update(CheckRows("more_targets", tensor, rows));
  }
  if (!status.ok()) return status;
  return batch;
}

Batch GetRows(const Batch& batch, int64_t begin, int64_t size) {
  const auto cut = [=](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, begin, size) : tensor;
  };
  Batch rows{cut(batch.input), cut(batch.target)};
  for (const torch::Tensor& input : batch.more_inputs) rows.more_inputs.push_back(cut(input));
  for (const torch::Tensor& target : batch.more_targets) rows.more_targets.push_back(cut(target));
  return rows;
}

}  // namespace torchps
