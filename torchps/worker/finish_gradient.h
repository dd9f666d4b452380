#pragma once

#include "absl/status/statusor.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/precision/precision.h"

namespace torchps {

// Whether a gradient and the averaged buffers are finite.
enum class Finite {
  kUnknown,  // not checked as a whole; each block is checked when it is pushed
  kYes,
  kNo,
  // Not finite, possibly because the loss was scaled up (training.precision FLOAT16).
  kOverflow,
};

// Copies the gradient of a step to the host and clips it if the job says so. Then gradients() and
// averaged() are ready to push. Call this function after the backward passes. `scaler` is the
// scaler that scaled the losses, or null: removes its scale from the gradient, and reports to it
// whether the gradient was finite. FAILED_PRECONDITION if a tensor was replaced. INTERNAL if the
// device failed.
absl::StatusOr<Finite> FinishGradient(const TrainingSpec& training, FlatModel* model,
                                      LossScaler* scaler = nullptr);

// FinishGradient() for a local step. Leaves the gradient on the device, for the inner optimizer.
// Always checks the whole gradient, but not the averaged buffers.
absl::StatusOr<Finite> FinishLocalGradient(const TrainingSpec& training, FlatModel* model,
                                           LossScaler* scaler = nullptr);

// FinishGradient() for a gradient that the device encodes. Leaves the gradient on the device.
// Returns kUnknown if the gradient need not be checked as a whole. Errors as for FinishGradient().
// REQUIRES: has_one_vector(), and scan() if the gradient must be checked as a whole.
absl::StatusOr<Finite> FinishGradientOnDevice(const TrainingSpec& training, FlatModel* model,
                                              LossScaler* scaler = nullptr);

// FetchGradient() and Judge() are the two halves of FinishGradient(), for callers that combine the
// results of several stages in between (StageWork). FetchGradient() copies the gradient to the host
// and removes the loss scale. Errors as for FinishGradient().
absl::Status FetchGradient(FlatModel* model, const LossScaler* scaler);
// Reports to the scaler, if any, whether the gradient was finite. Returns kYes if it was. Otherwise
// returns kOverflow if the loss scale may be the cause, else kNo.
Finite Judge(bool finite, LossScaler* scaler);

// Returns true if the job clips the gradient or checks it as a whole. No block is then final before
// FinishGradient() returns.
bool NeedsWholeGradient(const TrainingSpec& training);

}  // namespace torchps
