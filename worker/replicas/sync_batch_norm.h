#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>

#include "absl/status/status.h"

// Batch norm whose statistics may be those of all devices of a worker: SyncBatchNorm1d, 2d and 3d,
// in a module of one's own in place of torch's BatchNorm1d, 2d and 3d. Parameters, buffers, their
// names and options are the same, so a model's file fits either. They compute as torch's do unless
// the job has training.sync_batchnorm and the worker several devices; then a training pass is
// normalised with mean and variance over the samples of all devices, and its backward pass adds up
// what these owe to each other, as one device with the whole batch would
// (torch.nn.SyncBatchNorm).

namespace torchps {

// How a replica's batch norms add up what they have with the other replicas' ones.
class BatchSums {
 public:
  virtual ~BatchSums() = default;
  // `tensor` becomes the sum of those of all replicas that compute the present pass, each of which
  // calls this in the same order. Blocks until they do.
  virtual absl::Status Add(const torch::Tensor& tensor) = 0;
};

// What all of them are, whatever their dimensions.
class SyncBatchNorm {
 public:
  virtual ~SyncBatchNorm() = default;
  // Borrowed, for training passes from now on; null: each device by itself.
  void UseSums(BatchSums* sums) { sums_ = sums; }

 protected:
  BatchSums* sums_ = nullptr;
};

// Batch norm of `input`, whose second dimension is its channels, by the statistics of all replicas.
// `weight` and `bias` may be undefined. Where `running_mean` and `running_var` are defined they
// move by the part `momentum`. Throws c10::Error where `sums` fails.
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

class SyncBatchNorm1dImpl : public SyncBatchNormImplBase<1, SyncBatchNorm1dImpl> {
 public:
  using SyncBatchNormImplBase<1, SyncBatchNorm1dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm1d);

class SyncBatchNorm2dImpl : public SyncBatchNormImplBase<2, SyncBatchNorm2dImpl> {
 public:
  using SyncBatchNormImplBase<2, SyncBatchNorm2dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm2d);

class SyncBatchNorm3dImpl : public SyncBatchNormImplBase<3, SyncBatchNorm3dImpl> {
 public:
  using SyncBatchNormImplBase<3, SyncBatchNorm3dImpl>::SyncBatchNormImplBase;
};
TORCH_MODULE(SyncBatchNorm3d);

// Has all SyncBatchNorm modules of `module` use `sums`. INVALID_ARGUMENT names a batch norm of
// torch's own, which could not.
absl::Status SynchronizeBatchNorms(torch::nn::Module& module, BatchSums* sums);

}  // namespace torchps
