#include "worker/precision/loss_scaler.h"

#include "absl/strings/str_format.h"

namespace torchps {

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

}  // namespace torchps
