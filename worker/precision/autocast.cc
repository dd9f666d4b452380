#include "worker/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/version.h>

namespace torchps {
namespace {

// Since torch 2.4, one pair of functions serves all devices. Before, each device needed different
// functions.
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
  // Drops the cached copies, because the parameters are about to change, and the copies may lack a
  // graph.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  Set(device_, was_enabled_, type_before_);
}

}  // namespace torchps
