#include "torchps/worker/precision/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace torchps {

absl::Status CheckPrecision(TrainingSpec::Precision precision, torch::Device device) {
  // torch 1.13 supports only bfloat16 on the CPU.
  if (precision != TrainingSpec::FLOAT16 || !device.is_cpu()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "job field training.precision is FLOAT16, but device '", device.str(),
      "' cannot train in it; expected FLOAT32 or BFLOAT16 for the CPU, or a GPU (--device=cuda)"));
}

void SetTf32(TrainingSpec::Precision precision) {
  const bool allowed = precision == TrainingSpec::TF32;
  at::globalContext().setAllowTF32CuDNN(allowed);
  at::globalContext().setAllowTF32CuBLAS(allowed);
}

bool LossScaler::OnFinite() {
  if (++finite_in_a_row_ < kStepsToDouble) return false;
  finite_in_a_row_ = 0;
  if (scale_ >= kMax) return false;
  scale_ *= 2;
  return true;
}

bool LossScaler::OnNotFinite() {
  finite_in_a_row_ = 0;
  if (scale_ <= kLeast) return false;
  scale_ /= 2;
  ++overflows_;
  return true;
}

std::string ScaleLine(int slot, const LossScaler& scaler) {
  return absl::StrFormat("torchps_worker loss_scale slot=%d scale=%.0f overflows=%d", slot,
                         scaler.scale(), scaler.overflows());
}

namespace {

// Since torch 2.4, torch's autocast functions take the device type. Older versions have separate
// functions for the CPU and for GPUs.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)

bool IsEnabled(torch::DeviceType device) { return at::autocast::is_autocast_enabled(device); }
torch::ScalarType GetType(torch::DeviceType device) {
  return at::autocast::get_autocast_dtype(device);
}
void Set(torch::DeviceType device, bool enabled, torch::ScalarType type) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, type);
}

#else

bool IsEnabled(torch::DeviceType device) {
  return device == torch::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
torch::ScalarType GetType(torch::DeviceType device) {
  return device == torch::kCPU ? at::autocast::get_autocast_cpu_dtype()
                               : at::autocast::get_autocast_gpu_dtype();
}
void Set(torch::DeviceType device, bool enabled, torch::ScalarType type) {
  if (device == torch::kCPU) {
    at::autocast::set_cpu_enabled(enabled);
    at::autocast::set_autocast_cpu_dtype(type);
  } else {
    at::autocast::set_enabled(enabled);
    at::autocast::set_autocast_gpu_dtype(type);
  }
}

#endif

bool Casts(TrainingSpec::Precision precision, torch::DeviceType device) {
  switch (precision) {
    case TrainingSpec::BFLOAT16:
      return device == torch::kCPU || device == torch::kCUDA;
    case TrainingSpec::FLOAT16:
      return device == torch::kCUDA;
    default:
      return false;
  }
}

}  // namespace

Autocast::Autocast(TrainingSpec::Precision precision, torch::DeviceType device)
    : device_(device), on_(Casts(precision, device)) {
  if (!on_) return;
  was_enabled_ = IsEnabled(device_);
  type_before_ = GetType(device_);
  at::autocast::increment_nesting();
  Set(device_, true, precision == TrainingSpec::FLOAT16 ? torch::kFloat16 : torch::kBFloat16);
}

Autocast::~Autocast() {
  if (!on_) return;
  // Drops torch's cached 16-bit copies of the parameters: the parameters are about to change, and
  // copies made without gradients lack the autograd graph that the next pass needs.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  Set(device_, was_enabled_, type_before_);
}

}  // namespace torchps
