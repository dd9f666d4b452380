#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>

#include "absl/status/status.h"

// Batch norm modules that can share statistics across all devices of a worker. User modules may use
// SyncBatchNorm1d, 2d and 3d instead of torch's BatchNorm1d, 2d and 3d. Parameters, buffers, names
// and options are the same, so model files are interchangeable. The Sync modules compute like
// torch's modules, unless the job sets training.sync_batchnorm and the worker uses several devices.
// In that case, a training pass normalizes with the mean and variance over the samples of all
// devices. The backward pass also sums over the devices. The result is that of a single device with
// the whole batch, as with torch.nn.SyncBatchNorm.

namespace torchps {

// Sums tensors across the replicas' batch norms.
class BatchSums {
 public:
  virtual ~BatchSums() = default;
  // Replaces `tensor` by the sum over the replicas that compute the current pass. Blocks until each
  // of these replicas called this. The replicas must make the calls in the same order.
  virtual absl::Status Add(const torch::Tensor& tensor) = 0;
};

// Base of the modules for any dimension.
class SyncBatchNorm {
 public:
  virtual ~SyncBatchNorm() = default;
  // Uses the borrowed `sums` for training passes from now on; null: each device computes alone.
  void UseSums(BatchSums* sums) { sums_ = sums; }

 protected:
  BatchSums* sums_ = nullptr;
};

// Returns the batch norm of `input` with the statistics of all replicas. Dimension 1 of `input` is
// the channels. `weight` and `bias` may be undefined. Updates `running_mean` and `running_var` with
// `momentum` if they are defined. Throws c10::Error if `sums` fails.
torch::Tensor BatchNormOfAll(const torch::Tensor& input, const torch::Tensor& weight,
                             const torch::Tensor& bias, torch::Tensor running_mean,
                             torch::Tensor running_var, double momentum, double eps,
                             BatchSums* sums);

template <size_t D, typename Derived>
class SyncBatchNormImplBase
    : public torch::nn::NormImplBase<D, Derived, torch::nn::BatchNormOptions>,
      public SyncBatchNorm {
 public:
  using torch::nn::NormImplBase<D, Derived, torch::nn::BatchNormOptions>::NormImplBase;

  torch::Tensor forward(const torch::Tensor& input) {
    _check_input_dim(input);
    const bool tracks = this->options.track_running_stats();
    double momentum = this->options.momentum().value_or(0.0);
    if (this->is_training() && tracks && this->num_batches_tracked.defined()) {
      this->num_batches_tracked += 1;
      if (!this->options.momentum().has_value()) {
        momentum = 1.0 / this->num_batches_tracked.template item<double>();
      }
    }
    if (sums_ != nullptr && this->is_training()) {
      return BatchNormOfAll(input, this->weight, this->bias, this->running_mean, this->running_var,
                            momentum, this->options.eps(), sums_);
    }
    return torch::nn::functional::detail::batch_norm(
        input, this->running_mean, this->running_var, this->weight, this->bias,
        this->is_training() || !tracks, momentum, this->options.eps());
  }

 protected:
  void _check_input_dim(const torch::Tensor& input) override {
    const auto dimensions = static_cast<size_t>(input.dim());
    TORCH_CHECK(dimensions == D + 2 || (D == 1 && dimensions == 2), "SyncBatchNorm", D,
                "d expects an input of ", D == 1 ? "2 or " : "", D + 2, " dimensions, got ",
                dimensions);
  }
};

// Normalizes [B, C] or [B, C, L]; programs use its holder, SyncBatchNorm1d.
class SyncBatchNorm1dImpl : public SyncBatchNormImplBase<1, SyncBatchNorm1dImpl> {
 public:
  using SyncBatchNormImplBase<1, SyncBatchNorm1dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm1d);

// Normalizes [B, C, H, W]; programs use its holder, SyncBatchNorm2d.
class SyncBatchNorm2dImpl : public SyncBatchNormImplBase<2, SyncBatchNorm2dImpl> {
 public:
  using SyncBatchNormImplBase<2, SyncBatchNorm2dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm2d);

// Normalizes [B, C, D, H, W]; programs use its holder, SyncBatchNorm3d.
class SyncBatchNorm3dImpl : public SyncBatchNormImplBase<3, SyncBatchNorm3dImpl> {
 public:
  using SyncBatchNormImplBase<3, SyncBatchNorm3dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm3d);

// Makes the SyncBatchNorm modules in `module` use `sums`. INVALID_ARGUMENT names a batch norm of
// torch, which cannot use `sums`.
absl::Status SynchronizeBatchNorms(torch::nn::Module& module, BatchSums* sums);

}  // namespace torchps
