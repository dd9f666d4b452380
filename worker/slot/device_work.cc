#include "worker/slot/device_work.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "job/local_steps.h"
#include "worker/cuda/cuda_link.h"
#include "worker/cuda/device_encoder.h"
#include "worker/cuda/device_scan.h"
#include "worker/finish_gradient.h"
#include "worker/torch_error.h"

namespace torchps {

void DeviceWork::Link() {
  if (model_.on_host() || !model_.has_one_vector()) return;
  absl::StatusOr<std::unique_ptr<DeviceLink>> link = MakeLink();
  const absl::Status linked =
      link.ok() ? model_.UseLink(*std::move(link), block_map_) : link.status();
  if (linked.ok()) return;
  options_.log(absl::StrCat("gradients and values are copied while ", model_.device().str(),
                            " waits, not while it computes: ", linked.message()));
}

void DeviceWork::Scan() {
  if (model_.on_host() || !model_.has_one_vector()) return;
  if (!NeedsWholeGradient(job_.training()) && !HasLocalSteps(job_)) return;
  absl::StatusOr<std::unique_ptr<DeviceScan>> scan = MakeScan();
  if (scan.ok()) return model_.UseScan(*std::move(scan));
  options_.log(absl::StrCat("gradient norms are not computed by torchps's GPU kernels: ",
                            scan.status().message()));
}

void DeviceWork::Look() {
  // A link exists only if one device holds the whole model. Local steps end on the host.
  if (model_.link() == nullptr || HasLocalSteps(job_)) return;
  if (NeedsWholeGradient(job_.training())) return;
  absl::StatusOr<std::unique_ptr<FiniteCheck>> look = MakeFiniteCheck();
  if (look.ok()) return model_.UseFiniteCheck(*std::move(look));
  options_.log(absl::StrCat("the host checks gradients for values that are not finite, not ",
                            model_.device().str(), ": ", look.status().message()));
}

EncodedOutbox* DeviceWork::Encode() {
  // A link exists only if one device holds the whole model. Local steps end on the host.
  if (model_.link() == nullptr || HasLocalSteps(job_)) return nullptr;
  const bool whole = NeedsWholeGradient(job_.training());
  // Scan() logged the reason.
  if (whole && model_.scan() == nullptr) return nullptr;
  absl::StatusOr<std::unique_ptr<BlockEncoder>> encoder = MakeEncoder();
  const absl::Status used =
      encoder.ok() ? model_.UseEncoder(*std::move(encoder), /*looks=*/!whole) : encoder.status();
  if (used.ok()) {
    // Logged because neither the report nor the training result shows where gradients are encoded.
    options_.log(absl::StrCat("gradients are encoded as ",
                              EncodingSpec::Kind_Name(job_.wire().push().kind()), " on ",
                              model_.device().str()));
    return model_.encoded_outbox();
  }
  options_.log(absl::StrCat("gradients are encoded on the host, not by ", model_.device().str(),
                            ": ", used.message()));
  return nullptr;
}

absl::StatusOr<std::unique_ptr<DeviceLink>> DeviceWork::MakeLink() const {
  if (options_.make_link != nullptr) return options_.make_link();
  CudaLink::Options options;
  options.device = model_.device();
  options.error_of = &TorchError;
  return CudaLink::Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<DeviceScan>> DeviceWork::MakeScan() const {
  const torch::Tensor& gradients = model_.device_gradients();
  if (options_.make_scan != nullptr) return options_.make_scan(gradients.numel());
  if (!gradients.is_cuda()) return absl::UnavailableError("the device is not a GPU");
  try {
    return DeviceScan::Create(gradients.device(), gradients.numel());
  } catch (const std::exception& error) {
    return TorchError("allocating memory", error);
  }
}

absl::StatusOr<std::unique_ptr<FiniteCheck>> DeviceWork::MakeFiniteCheck() const {
  const torch::Tensor& gradients = model_.device_gradients();
  if (options_.make_finite_check != nullptr)
    return options_.make_finite_check(gradients, block_map_);
  // Tests use the CPU as the device, which does not need kernels.
  if (!gradients.is_cuda()) return nullptr;
  try {
    return CudaFiniteCheck::Create(gradients, block_map_);
  } catch (const std::exception& error) {
    return TorchError("allocating memory", error);
  }
}

absl::StatusOr<std::unique_ptr<BlockEncoder>> DeviceWork::MakeEncoder() const {
  const torch::Tensor& gradients = model_.device_gradients();
  const EncodingSpec& encoding = job_.wire().push();
  if (options_.make_encoder != nullptr) {
    return options_.make_encoder(gradients, block_map_, encoding);
  }
  if (!gradients.is_cuda()) return absl::UnavailableError("the device is not a GPU");
  try {
    return DeviceEncoder::Create(gradients, block_map_, encoding);
  } catch (const std::exception& error) {
    return TorchError("allocating memory", error);
  }
}

}  // namespace torchps
