#pragma once

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/flat_model.h"

namespace torchps {

// Whether a gradient and the averaged buffers are finite everywhere.
enum class Finite {
  kUnknown,  // nobody looked, since nothing was to be clipped or checked
  kYes,
  kNo,
};

// After the backward passes of a step: what the model's gradients() and averaged() hold is what is
// to be pushed, clipped as the job says. FAILED_PRECONDITION: something has replaced a tensor.
// INTERNAL: the device has failed.
absl::StatusOr<Finite> FinishGradient(const TrainingSpec& training, FlatModel* model);

// The same after a local step, whose gradient stays on the device: the inner optimizer takes it
// there. Always looks at all of it.
absl::StatusOr<Finite> FinishLocalGradient(const TrainingSpec& training, FlatModel* model);

// Whether FinishGradient() looks at the gradient as a whole, so that no part of it is final before.
bool NeedsWholeGradient(const TrainingSpec& training);

}  // namespace torchps
