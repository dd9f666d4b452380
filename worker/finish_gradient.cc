#include "worker/finish_gradient.h"

#include "common/cpu/finite_check.h"
#include "worker/gradient/gradient_scan.h"

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

bool NeedsWholeGradient(const TrainingSpec& training) {
  return training.clip_norm() > 0 || training.nonfinite() != SKIP_BLOCK;
}

}  // namespace torchps
