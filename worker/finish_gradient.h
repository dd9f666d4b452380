#pragma once

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/flat_model.h"
#include "worker/precision/precision.h"

namespace torchps {

// States if a gradient and the averaged buffers are finite.
enum class Finite {
  kUnknown,  // not checked, because the job neither clips nor checks
  kYes,
  kNo,
  // Not finite, possibly because the loss was scaled up (training.precision FLOAT16).
  kOverflow,
};

// Brings the gradient of a step to the host and clips it if the job says so, so that gradients()
// and averaged() are ready to push. Call it after the backward passes. If `scaler` is not null, it
// scaled the losses: removes the scale and reports the result to the scaler. FAILED_PRECONDITION if
// a tensor was replaced. INTERNAL if the device failed.
absl::StatusOr<Finite> FinishGradient(const TrainingSpec& training, FlatModel* model,
                                      LossScaler* scaler = nullptr);

// The same for a local step. The gradient stays on the device for the inner optimizer. Always
// checks the whole gradient.
absl::StatusOr<Finite> FinishLocalGradient(const TrainingSpec& training, FlatModel* model,
                                           LossScaler* scaler = nullptr);

// FinishGradient() for a gradient that the device encodes, so that it stays on the device. Returns
// kUnknown if the gradient need not be checked as a whole. Errors as above. REQUIRES:
// has_one_vector(), and scan() if the gradient must be checked as a whole.
absl::StatusOr<Finite> FinishGradientOnDevice(const TrainingSpec& training, FlatModel* model,
                                              LossScaler* scaler = nullptr);

// FetchGradient() and Judge() are the two halves of FinishGradient(), for callers that combine
// results of several replicas in between. FetchGradient() brings the gradient to the host and
// removes the loss scale. Errors as above.
absl::Status FetchGradient(FlatModel* model, const LossScaler* scaler);
// Reports the result to the scaler, if any. Never returns kUnknown.
Finite Judge(bool finite, LossScaler* scaler);

// Returns true if FinishGradient() needs the gradient as a whole, so that blocks are not final
// earlier.
bool NeedsWholeGradient(const TrainingSpec& training);

}  // namespace torchps
