#include "worker/cuda/device_scan.h"

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"
#include "worker/cuda/device_kernels.h"
#include "worker/kernels/kernel_shapes.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<DeviceScan>> DeviceScan::Create(c10::Device device,
                                                               int64_t elements) {
  absl::StatusOr<DeviceKernels> made = DeviceKernels::Create(device);
  if (!made.ok()) return made.status();
  return std::make_unique<DeviceScan>(std::move(made->kernels), device, elements,
                                      std::move(made->current_stream));
}

DeviceScan::DeviceScan(std::unique_ptr<GradientKernels> kernels, c10::Device device,
                       int64_t elements, CurrentStream current_stream)
    : kernels_(std::move(kernels)),
      current_stream_(std::move(current_stream)),
      elements_(elements),
      scratch_(DoublesFor(GradientKernels::ScanScratchBytes(elements), device)),
      verdict_(DoublesFor(sizeof(GradientVerdict), device)) {}

absl::StatusOr<GradientScan> DeviceScan::ScanAndClip(const at::Tensor& gradients,
                                                     double clip_norm) {
  TPS_CHECK(gradients.numel() == elements_, "a gradient of another length");
  const GradientKernels::Stream stream = current_stream_();
  auto* const verdict = static_cast<GradientVerdict*>(verdict_.data_ptr());
  absl::Status status = kernels_->Scan(gradients.data_ptr<float>(), elements_, clip_norm,
                                       scratch_.data_ptr(), verdict, stream);
  if (status.ok() && clip_norm > 0) {
    status = kernels_->Scale(gradients.data_ptr<float>(), elements_, verdict, stream);
  }
  if (!status.ok()) return status;
  // Copies on the same stream.
  const at::Tensor host = verdict_.to(at::kCPU);
  GradientVerdict found;
  std::memcpy(&found, host.data_ptr(), sizeof(found));
  return GradientScan{found.finite != 0, found.norm};
}

}  // namespace torchps
