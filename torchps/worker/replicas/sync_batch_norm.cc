#include "torchps/worker/replicas/sync_batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Returns the dimensions other than the channels.
std::vector<int64_t> AllButChannels(const torch::Tensor& input) {
  std::vector<int64_t> dimensions = {0};
  for (int64_t dimension = 2; dimension < input.dim(); ++dimension) {
    dimensions.push_back(dimension);
  }
  return dimensions;
}

// Reshapes one number per channel so that it broadcasts over `input`.
torch::Tensor ForEach(const torch::Tensor& input, const torch::Tensor& channels) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = channels.numel();
  return channels.view(shape);
}

void AddAll(BatchSums* sums, const torch::Tensor& tensor) {
  const absl::Status status = sums->Add(tensor);
  TORCH_CHECK(status.ok(), std::string(status.message()));
}

// Statistics over the replicas' elements. `mean` and `variance` have one number per channel.
struct Statistics {
  torch::Tensor mean;
  torch::Tensor variance;  // divided by the element count
  torch::Tensor elements;  // element count of a channel: one number, on the device
};

// Returns the statistics of all replicas, computed from the sums of x and of x squared. Uses
// double, so that the difference of squares keeps float32 precision.
Statistics StatisticsOfAll(const torch::Tensor& input, BatchSums* sums) {
  const int64_t channels = input.size(1);
  const auto [variance, mean] =
      torch::var_mean(input, AllButChannels(input), /*unbiased=*/false, /*keepdim=*/false);
  const torch::Tensor here = mean.to(torch::kFloat64);
  torch::Tensor sum = torch::empty({2 * channels + 1}, here.options());
  const auto elements = static_cast<double>(input.numel() / channels);
  sum.narrow(0, 0, channels).copy_(here * elements);
  sum.narrow(0, channels, channels).copy_((variance.to(torch::kFloat64) + here * here) * elements);
  sum.narrow(0, 2 * channels, 1).fill_(elements);
  AddAll(sums, sum);
  Statistics all;
  all.elements = sum.narrow(0, 2 * channels, 1);
  all.mean = sum.narrow(0, 0, channels) / all.elements;
  all.variance =
      (sum.narrow(0, channels, channels) / all.elements - all.mean * all.mean).clamp_min(0);
  return all;
}

// Computes y = (x - mean) * scale * weight + bias with scale = 1 / sqrt(variance + eps). Mean and
// scale depend on the x of all replicas. So the gradient of each x depends on the y of all
// replicas.
class Normalize final : public torch::autograd::Function<Normalize> {
 public:
  // `sums` is the address of a BatchSums that outlives the autograd graph. It is a number, because
  // a context cannot store pointers.
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               const torch::Tensor& mean, const torch::Tensor& variance,
                               const torch::Tensor& elements, double eps, int64_t sums) {
    const torch::Tensor scale = (variance + eps).rsqrt();
    context->save_for_backward({input, weight, mean, scale, elements});
    context->saved_data["sums"] = sums;
    return torch::batch_norm(input, weight, bias, mean.to(input.scalar_type()),
                             variance.to(input.scalar_type()), /*training=*/false,
                             /*momentum=*/0, eps, /*cudnn_enabled=*/false);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const tensor_list saved = context->get_saved_variables();
    const torch::Tensor& input = saved[0];
    const torch::Tensor& weight = saved[1];
    const torch::Tensor mean = saved[2].to(input.scalar_type());
    const torch::Tensor scale = saved[3].to(input.scalar_type());
    const torch::Tensor& gradient = gradients[0];
    const int64_t channels = input.size(1);
    const std::vector<int64_t> dimensions = AllButChannels(input);

    const torch::Tensor normalized = (input - ForEach(input, mean)) * ForEach(input, scale);
    // The gradients of bias and weight from this replica's samples. `sum` is their sum over the
    // replicas.
    const torch::Tensor of_bias = gradient.sum(dimensions);
    const torch::Tensor of_weight = (gradient * normalized).sum(dimensions);
    const torch::Tensor sum = torch::cat({of_bias, of_weight}).to(torch::kFloat64);
    AddAll(reinterpret_cast<BatchSums*>(context->saved_data["sums"].toInt()), sum);
    const torch::Tensor means = (sum / saved[4]).to(input.scalar_type());

    torch::Tensor of_input = gradient - ForEach(input, means.narrow(0, 0, channels)) -
                             normalized * ForEach(input, means.narrow(0, channels, channels));
    of_input = of_input * ForEach(input, weight * scale);
    const torch::Tensor none;
    return {of_input, of_weight, of_bias, none, none, none, none, none};
  }
};

}  // namespace

torch::Tensor BatchNormOfAll(const torch::Tensor& input, const torch::Tensor& weight,
                             const torch::Tensor& bias, torch::Tensor running_mean,
                             torch::Tensor running_var, double momentum, double eps,
                             BatchSums* sums) {
  // Computes in float32, because sums of 16-bit numbers are too imprecise and the statistics use 32
  // bits (autocast).
  if (input.scalar_type() == torch::kBFloat16 || input.scalar_type() == torch::kFloat16) {
    return BatchNormOfAll(input.to(torch::kFloat32), weight, bias, std::move(running_mean),
                          std::move(running_var), momentum, eps, sums)
        .to(input.scalar_type());
  }
  Statistics all;
  {
    const torch::NoGradGuard no_grad;
    all = StatisticsOfAll(input, sums);
    if (running_mean.defined()) {
      const torch::Tensor unbiased =
          all.variance * (all.elements / (all.elements - 1).clamp_min(1));
      running_mean.mul_(1 - momentum).add_(all.mean * momentum);
      running_var.mul_(1 - momentum).add_(unbiased * momentum);
    }
  }
  // The torch functions below do not accept undefined tensors.
  const torch::Tensor scale =
      weight.defined() ? weight : torch::ones_like(all.mean, input.scalar_type());
  const torch::Tensor shift =
      bias.defined() ? bias : torch::zeros_like(all.mean, input.scalar_type());
  return Normalize::apply(input, scale, shift, all.mean, all.variance, all.elements, eps,
                          reinterpret_cast<int64_t>(sums));
}

absl::Status SynchronizeBatchNorms(torch::nn::Module& module, BatchSums* sums) {
  for (const auto& named : module.named_modules()) {
    torch::nn::Module& part = *named.value();
    if (part.as<torch::nn::BatchNorm1d>() != nullptr ||
        part.as<torch::nn::BatchNorm2d>() != nullptr ||
        part.as<torch::nn::BatchNorm3d>() != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "training.sync_batchnorm cannot synchronize '", named.key(), "': ", "it is a ",
          part.name(), "; expected torchps::SyncBatchNorm1d, 2d or 3d instead ",
          "(torchps/worker/replicas/sync_batch_norm.h)"));
    }
  }
  // Runs after the checks, so that a refused module stays unchanged.
  for (const auto& part : module.modules()) {
    if (auto* norm = dynamic_cast<SyncBatchNorm*>(part.get()); norm != nullptr) norm->UseSums(sums);
  }
  return absl::OkStatus();
}

}  // namespace torchps
