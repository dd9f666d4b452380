#include "torchps/worker/pipeline/tensor_codec.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/worker/pipeline/mailbox.h"

namespace torchps {
namespace {

struct TypePair {
  TensorHeader::Type travels;
  torch::ScalarType type;
};

constexpr TypePair kTypes[] = {
    {TensorHeader::FLOAT32, torch::kFloat32}, {TensorHeader::FLOAT64, torch::kFloat64},
    {TensorHeader::FLOAT16, torch::kFloat16}, {TensorHeader::BFLOAT16, torch::kBFloat16},
    {TensorHeader::INT64, torch::kInt64},     {TensorHeader::INT32, torch::kInt32},
    {TensorHeader::UINT8, torch::kUInt8},     {TensorHeader::BOOL, torch::kBool},
};

}  // namespace

absl::StatusOr<TensorHeader> DescribeTensor(const torch::Tensor& tensor) {
  TensorHeader header;
  if (!tensor.defined()) return header;
  for (const TypePair& pair : kTypes) {
    if (pair.type == tensor.scalar_type()) header.set_type(pair.travels);
  }
  if (header.type() == TensorHeader::NONE) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stage returned a tensor of type ", torch::toString(tensor.scalar_type()),
                     ", which cannot be sent between the processes of a replica"));
  }
  header.mutable_shape()->Add(tensor.sizes().begin(), tensor.sizes().end());
  return header;
}

absl::StatusOr<torch::Tensor> TakeTensor(TensorMessage* parcel) {
  if (absl::Status valid = CheckTensor(*parcel); !valid.ok()) return valid;
  const TensorHeader& header = parcel->tensor();
  if (header.type() == TensorHeader::NONE) return torch::Tensor();
  const auto known =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&header](const TypePair& pair) { return pair.travels == header.type(); });
  const std::vector<int64_t> shape(header.shape().begin(), header.shape().end());
  const auto payload = std::make_shared<std::string>();
  payload->swap(*parcel->mutable_payload());
  return torch::from_blob(
      payload->data(), shape, [payload](void*) {}, torch::TensorOptions().dtype(known->type));
}

}  // namespace torchps
