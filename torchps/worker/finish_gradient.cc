#include "torchps/worker/finish_gradient.h"

#include <cmath>
#include <exception>

#include "torch/utils.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/worker/cuda/device_scan.h"
#include "torchps/worker/gradient/gradient_scan.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// Returns the factor that removes the loss scale. Exact, because the scale is a power of two.
double InverseScale(const LossScaler* scaler) {
  return scaler == nullptr ? 1 : 1 / scaler->scale();
}

// Removes the loss scale on the device. Throws torch's exceptions. REQUIRES: has_one_vector().
void UndoScale(FlatModel* model, const LossScaler* scaler) {
  const double inverse = InverseScale(scaler);
  if (inverse == 1) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor gradients = model->device_gradients();
  gradients.mul_(inverse);
}

// Removes the loss scale, then checks and clips the gradient, all on the device. The device's
// stream keeps this order, which matters because clip_norm refers to the unscaled gradient.
// REQUIRES: scan() is not null.
absl::StatusOr<GradientScan> ScanOnDevice(const TrainingSpec& training, FlatModel* model,
                                          const LossScaler* scaler) {
  try {
    UndoScale(model, scaler);
    return model->scan()->ScanAndClip(model->device_gradients(), training.clip_norm());
  } catch (const std::exception& error) {
    return TorchError("checking a gradient", error);
  }
}

}  // namespace

absl::Status FetchGradient(FlatModel* model, const LossScaler* scaler) {
  if (absl::Status status = model->CheckViews(); !status.ok()) return status;
  // Removes the loss scale on the device if possible, which is faster than on the host.
  const bool there = model->has_one_vector();
  if (there) {
    try {
      UndoScale(model, scaler);
    } catch (const std::exception& error) {
      return TorchError("scaling a gradient", error);
    }
  }
  if (absl::Status status = model->ToHost(); !status.ok()) return status;
  const double inverse = InverseScale(scaler);
  if (there || inverse == 1) return absl::OkStatus();
  for (float& element : model->gradients()) element *= static_cast<float>(inverse);
  return absl::OkStatus();
}

Finite Judge(bool finite, LossScaler* scaler) {
  if (scaler == nullptr) return finite ? Finite::kYes : Finite::kNo;
  if (!finite) return scaler->OnNotFinite() ? Finite::kOverflow : Finite::kNo;
  scaler->OnFinite();
  return Finite::kYes;
}

absl::StatusOr<Finite> FinishGradient(const TrainingSpec& training, FlatModel* model,
                                      LossScaler* scaler) {
  if (NeedsWholeGradient(training) && model->scan() != nullptr) {
    if (absl::Status status = model->CheckViews(); !status.ok()) return status;
    const absl::StatusOr<GradientScan> scan = ScanOnDevice(training, model, scaler);
    if (!scan.ok()) return scan.status();
    if (absl::Status status = model->ToHost(); !status.ok()) return status;
    return Judge(scan->finite && FirstNonFinite(model->averaged()) < 0, scaler);
  }
  if (absl::Status status = FetchGradient(model, scaler); !status.ok()) return status;
  if (!NeedsWholeGradient(training)) return Finite::kUnknown;
  const GradientScan scan = ScanGradient(model->gradients());
  const Finite finite = Judge(scan.finite && FirstNonFinite(model->averaged()) < 0, scaler);
  if (finite == Finite::kYes) {
    ClipGradient(model->gradients(), scan.norm, training.clip_norm());
  }
  return finite;
}

absl::StatusOr<Finite> FinishGradientOnDevice(const TrainingSpec& training, FlatModel* model,
                                              LossScaler* scaler) {
  if (absl::Status status = model->CheckViews(); !status.ok()) return status;
  if (!NeedsWholeGradient(training)) return Finite::kUnknown;
  const absl::StatusOr<GradientScan> scan = ScanOnDevice(training, model, scaler);
  if (!scan.ok()) return scan.status();
  try {
    const torch::NoGradGuard no_grad;
    const bool averaged = torch::isfinite(model->device_averaged()).all().item<bool>();
    return Judge(scan->finite && averaged, scaler);
  } catch (const std::exception& error) {
    return TorchError("checking averaged buffers", error);
  }
}

absl::StatusOr<Finite> FinishLocalGradient(const TrainingSpec& training, FlatModel* model,
                                           LossScaler* scaler) {
  if (absl::Status status = model->CheckViews(); !status.ok()) return status;
  if (model->scan() != nullptr) {
    const absl::StatusOr<GradientScan> scan = ScanOnDevice(training, model, scaler);
    if (!scan.ok()) return scan.status();
    return Judge(scan->finite, scaler);
  }
  try {
    UndoScale(model, scaler);
    if (model->on_host()) {
      const GradientScan scan = ScanGradient(model->gradients());
      if (scan.finite) ClipGradient(model->gradients(), scan.norm, training.clip_norm());
      return Judge(scan.finite, scaler);
    }
    const torch::NoGradGuard no_grad;
    torch::Tensor gradients = model->device_gradients();
    const auto norm = gradients.norm(2, torch::kFloat64).item<double>();
    const Finite finite = Judge(std::isfinite(norm), scaler);
    const double most = training.clip_norm();
    if (finite == Finite::kYes && most > 0 && norm > most) {
      gradients.mul_(most / (norm + 1e-6));  // as ClipGradient
    }
    return finite;
  } catch (const std::exception& error) {
    return TorchError("checking a gradient", error);
  }
}

bool NeedsWholeGradient(const TrainingSpec& training) {
  return training.clip_norm() > 0 || training.nonfinite() != SKIP_BLOCK ||
         training.precision() == TrainingSpec::FLOAT16;
}

}  // namespace torchps
