#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "job/schedule.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/flat_model.h"
#include "worker/learner.h"
#include "worker/optimizer/inner_optimizer.h"

namespace torchps {

// Local steps in place of one gradient (LocalSpec; DiLoCo, Douillard et al. 2023): takes steps of
// the inner optimizer on the model's values, then writes the push over the gradients:
//   u = anchor - values
// The anchor is a copy of the pulled values.
//
// The optimizer's state outlives the steps, and dies with this object. Only a step whose gradient
// is finite everywhere is taken.
//
// Thread-compatible, as what computes the gradients, whose thread it shares. Borrows all that it is
// made of. Costs a float per trained element for the anchor, where the device has the values,
// beside the inner optimizer's state.
class LocalSteps {
 public:
  // `job` is normalised and completed, and has local steps; `compute` leaves the gradient of a
  // local step in `model` (Learner::Options::local_steps). Errors as InnerOptimizer::Create(), and
  // INVALID_ARGUMENT: the model lies on several devices.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(const JobSpec& job, FlatModel* model,
                                                            ComputeGradient compute,
                                                            const Clock* clock);

  // As Learner::Compute(), for all steps together: `loss_sum` is over all samples, each at the
  // values that its step began with, and those of steps whose loss was not finite at the mean of
  // the others; not finite where none was. The observer hears that the steps are done and
  // gradients() about to be overwritten, and of no block. The caller then pushes gradients() and
  // averaged(). `finite` is kNo where nothing is to be pushed: no step could be taken, or one could
  // not and the job says STOP_JOB.
  absl::StatusOr<Learner::Gradient> Compute(const Learner::Step& step, Learner::Observer* observer);

 private:
  LocalSteps(const JobSpec& job, Schedule schedule, std::unique_ptr<InnerOptimizer> optimizer,
             FlatModel* model, ComputeGradient compute, const Clock* clock);

  // Samples of each step but perhaps the last, which has the rest.
  int64_t SamplesOfStep(int64_t samples) const;
  // Copies the pulled values into the anchor.
  void DropAnchor();
  // Writes anchor - values into the model's gradients.
  absl::Status WriteDifference();

  const JobSpec job_;
  const Schedule schedule_;
  const std::unique_ptr<InnerOptimizer> optimizer_;
  FlatModel* const model_;
  const ComputeGradient compute_;
  const Clock* const clock_;
  torch::Tensor anchor_;
  // Steps begun in the life of this object.
  int64_t steps_ = 0;
};

}  // namespace torchps
