#include "worker/state/file_dtype.h"

#include <torch/utils.h>

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace torchps {
namespace {

struct TypePair {
  Dtype dtype;
  torch::ScalarType type;
};

constexpr TypePair kTypes[] = {
    {Dtype::kBOOL, torch::kBool},        {Dtype::kU8, torch::kUInt8},
    {Dtype::kI8, torch::kInt8},          {Dtype::kI16, torch::kInt16},
    {Dtype::kI32, torch::kInt32},        {Dtype::kI64, torch::kInt64},
    {Dtype::kF16, torch::kFloat16},      {Dtype::kBF16, torch::kBFloat16},
    {Dtype::kF32, torch::kFloat32},      {Dtype::kF64, torch::kFloat64},
    {Dtype::kC64, torch::kComplexFloat}, {Dtype::kC128, torch::kComplexDouble},
};

}  // namespace

absl::StatusOr<Dtype> GetFileDtype(const std::string& name, const torch::Tensor& tensor) {
  const bool is_dense = tensor.layout() == torch::kStrided;
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&tensor](const TypePair& pair) { return pair.type == tensor.scalar_type(); });
  if (is_dense && found != std::end(kTypes)) return found->dtype;
  const absl::string_view kind = is_dense ? torch::toString(tensor.scalar_type()) : "sparse";
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is ", kind, ", and a model file holds dense numbers only; register it dense, ",
      "or keep it in a member that is not registered"));
}

absl::optional<torch::ScalarType> GetScalarType(Dtype dtype) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [dtype](const TypePair& pair) { return pair.dtype == dtype; });
  if (found == std::end(kTypes)) return absl::nullopt;
  return found->type;
}

}  // namespace torchps
