#include "tests/worker/cuda/fake_device.h"

#include "tests/worker/kernels/host_launcher.h"
#include "torchps/worker/cuda/device_encoder.h"
#include "torchps/worker/cuda/device_scan.h"
#include "torchps/worker/kernels/gradient_kernels.h"

namespace torchps {
namespace {

std::unique_ptr<GradientKernels> HostKernels() {
  return std::make_unique<GradientKernels>(MakeHostLauncher());
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLink>> FakeDevice::MakeLink(torch::Device device) const {
  if (!link.has_value()) return GpuFactory::MakeLink(device);
  if (!link->ok()) return link->status();
  FakeLink::Options options = **link;
  options.downs = &downs_;
  return std::make_unique<FakeLink>(options);
}

absl::StatusOr<std::unique_ptr<BatchUploader>> FakeDevice::MakeUploader(
    torch::Device device) const {
  if (!lift.has_value()) return GpuFactory::MakeUploader(device);
  return std::make_unique<FakeLift>(*lift);
}

absl::StatusOr<std::unique_ptr<DeviceScan>> FakeDevice::MakeScan(
    const torch::Tensor& gradients) const {
  if (!scan.has_value()) return GpuFactory::MakeScan(gradients);
  if (!scan->ok()) return *scan;
  ++scans_;
  return std::make_unique<DeviceScan>(HostKernels(), gradients.device(), gradients.numel(),
                                      [] { return nullptr; });
}

absl::StatusOr<std::unique_ptr<FiniteCheck>> FakeDevice::MakeFiniteCheck(
    const torch::Tensor& gradients, const BlockMap& block_map) const {
  if (!finite_check.has_value()) return GpuFactory::MakeFiniteCheck(gradients, block_map);
  if (!finite_check->ok()) return *finite_check;
  ++finite_checks_;
  return std::make_unique<CudaFiniteCheck>(HostKernels(), gradients, block_map,
                                           [] { return nullptr; });
}

absl::StatusOr<std::unique_ptr<BlockEncoder>> FakeDevice::MakeEncoder(
    const torch::Tensor& gradients, const BlockMap& block_map, const EncodingSpec& encoding) const {
  if (!encoder.has_value()) return GpuFactory::MakeEncoder(gradients, block_map, encoding);
  if (!encoder->ok()) return *encoder;
  ++encoders_;
  return std::make_unique<DeviceEncoder>(HostKernels(), gradients, block_map, encoding,
                                         [] { return nullptr; });
}

}  // namespace torchps
