#include "worker/pipeline/tensor_codec.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torch/utils.h"

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

// Far above real tensor sizes. With this limit, the number of bytes fits into 64 bits.
constexpr int64_t kMaxElements = int64_t{1} << 40;

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
  const TensorHeader& header = parcel->tensor();
  if (header.type() == TensorHeader::NONE) {
    if (parcel->payload().empty()) return torch::Tensor();
    return absl::InvalidArgumentError("a parcel has bytes and no tensor");
  }
  const TypePair* known = nullptr;
  for (const TypePair& pair : kTypes) {
    if (pair.travels == header.type()) known = &pair;
  }
  if (known == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of type ", static_cast<int>(header.type()), ", which is unknown"));
  }
  const std::vector<int64_t> shape(header.shape().begin(), header.shape().end());
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || (dimension > 0 && elements > kMaxElements / dimension)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of the invalid shape [", absl::StrJoin(shape, ", "), "]"));
    }
    elements *= dimension;
  }
  const int64_t bytes = elements * static_cast<int64_t>(torch::elementSize(known->type));
  if (static_cast<int64_t>(parcel->payload().size()) != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of the shape [", absl::StrJoin(shape, ", "), "] came with ",
                     parcel->payload().size(), " bytes; expected ", bytes));
  }
  const auto payload = std::make_shared<std::string>();
  payload->swap(*parcel->mutable_payload());
  return torch::from_blob(
      payload->data(), shape, [payload](void*) {}, torch::TensorOptions().dtype(known->type));
}

}  // namespace torchps
