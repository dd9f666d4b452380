#include "torchps/worker/device_factory.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "torchps/worker/cuda/cuda_batch_uploader.h"
#include "torchps/worker/cuda/cuda_link.h"
#include "torchps/worker/cuda/device_encoder.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// Returns the result of `make`, which allocates device memory and compiles kernels. UNAVAILABLE if
// the gradients are not on a GPU.
template <typename Make>
auto OnGpu(const torch::Tensor& gradients, const Make& make) -> decltype(make()) {
  if (!gradients.is_cuda()) return absl::UnavailableError("the device is not a GPU");
  try {
    return make();
  } catch (const std::exception& error) {
    return TorchError("allocating memory", error);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLink>> GpuFactory::MakeLink(torch::Device device) const {
  CudaLink::Options options;
  options.device = device;
  options.error_of = &TorchError;
  return CudaLink::Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<BatchUploader>> GpuFactory::MakeUploader(
    torch::Device device) const {
  if (!device.is_cuda()) return nullptr;
  CudaBatchUploader::Options options;
  options.device = device;
  try {
    return std::make_unique<CudaBatchUploader>(std::move(options));
  } catch (...) {
    return ThrownError("making streams");
  }
}

absl::StatusOr<std::unique_ptr<DeviceScan>> GpuFactory::MakeScan(
    const torch::Tensor& gradients) const {
  return OnGpu(gradients,
               [&] { return DeviceScan::Create(gradients.device(), gradients.numel()); });
}

absl::StatusOr<std::unique_ptr<FiniteCheck>> GpuFactory::MakeFiniteCheck(
    const torch::Tensor& gradients, const BlockMap& block_map) const {
  // In tests the device may be the CPU. The host then checks the blocks.
  if (!gradients.is_cuda()) return nullptr;
  return OnGpu(gradients, [&] { return CudaFiniteCheck::Create(gradients, block_map); });
}

absl::StatusOr<std::unique_ptr<BlockEncoder>> GpuFactory::MakeEncoder(
    const torch::Tensor& gradients, const BlockMap& block_map, const EncodingSpec& encoding) const {
  return OnGpu(gradients, [&] { return DeviceEncoder::Create(gradients, block_map, encoding); });
}

const GpuFactory* GpuFactory::Get() {
  static const GpuFactory factory;
  return &factory;
}

}  // namespace torchps
