#pragma once

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/flat_model.h"
#include "worker/precision/loss_scaler.h"

namespace torchps {

// Whether a gradient and the averaged buffers are finite everywhere.
enum class Finite {
  kUnknown,  // nobody looked, since nothing was to be clipped or checked
  kYes,
  kNo,
  // No, but the loss was scaled up (training.precision FLOAT16), and that may be why.
  kOverflow,
};

// After the backward passes of a step: what the model's gradients() and averaged() hold is what is
// to be pushed, clipped as the job says. `scaler` has scaled the losses, which is undone, and is
// told what came of it; null: nobody has. FAILED_PRECONDITION: something has replaced a tensor.
// INTERNAL: the device has failed.
absl::StatusOr<Finite> FinishGradient(const TrainingSpec& training, FlatModel* model,
                                      LossScaler* scaler = nullptr);

// The same after a local step, whose gradient stays on the device: the inner optimizer takes it
// there. Always looks at all of it.
absl::StatusOr<Finite> FinishLocalGradient(const TrainingSpec& training, FlatModel* model,
                                           LossScaler* scaler = nullptr);

// FinishGradient() where the gradient stays on the device, to be encoded there. kUnknown where no
// part of it has to be looked at as a whole. Errors as above. REQUIRES: has_one_vector(), and
// scan() where it has to.
absl::StatusOr<Finite> FinishGradientOnDevice(const TrainingSpec& training, FlatModel* model,
                                              LossScaler* scaler = nullptr);

// The two ends of FinishGradient(), for who agrees with others in between on what they have found.
// Brings the gradient to the host, and undoes the scale of its losses. Errors as above.
absl::Status FetchGradient(FlatModel* model, const LossScaler* scaler);
// Tells the scaler, where there is one. Never kUnknown.
Finite Judge(bool finite, LossScaler* scaler);

// Whether FinishGradient() looks at the gradient as a whole, so that no part of it is final before.
bool NeedsWholeGradient(const TrainingSpec& training);

}  // namespace torchps
