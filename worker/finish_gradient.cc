#include "worker/finish_gradient.h"

#include <cmath>

#include "common/cpu/finite_check.h"
#include "torch/utils.h"
#include "worker/gradient/gradient_scan.h"
#include "worker/torch_error.h"

namespace torchps {

absl::StatusOr<Finite> FinishGradient(const TrainingSpec& training, FlatModel* model) {
  if (absl::Status status = model->CheckViews(); !status.ok()) return status;
  if (absl::Status status = model->ToHost(); !status.ok()) return status;
  if (!NeedsWholeGradient(training)) return Finite::kUnknown;
  const GradientScan scan = ScanGradient(model->gradients());
  if (!scan.finite || FirstNonFinite(model->averaged()) >= 0) return Finite::kNo;
  ClipGradient(model->gradients(), scan.norm, training.clip_norm());
  return Finite::kYes;
}

absl::StatusOr<Finite> FinishLocalGradient(const TrainingSpec& training, FlatModel* model) {
  if (absl::Status status = model->CheckViews(); !status.ok()) return status;
  if (model->on_host()) {
    const GradientScan scan = ScanGradient(model->gradients());
    if (scan.finite) ClipGradient(model->gradients(), scan.norm, training.clip_norm());
    return scan.finite ? Finite::kYes : Finite::kNo;
  }
  try {
    const torch::NoGradGuard no_grad;
    const torch::Tensor gradients = model->device_gradients();
    const auto norm = gradients.norm(2, torch::kFloat64).item<double>();
    if (!std::isfinite(norm)) return Finite::kNo;
    const double most = training.clip_norm();
    if (most > 0 && norm > most) gradients.mul_(most / (norm + 1e-6));  // as ClipGradient
    return Finite::kYes;
  } catch (const c10::Error& error) {
    return TorchError("looking at a gradient", error);
  }
}

bool NeedsWholeGradient(const TrainingSpec& training) {
  return training.clip_norm() > 0 || training.nonfinite() != SKIP_BLOCK;
}

}  // namespace torchps
