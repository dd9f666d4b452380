#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "torchps/common/clock.h"
#include "torchps/job/schedule.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/inner_optimizer.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/loop/step_work.h"

namespace torchps {

// Takes several local optimizer steps per push in place of computing one gradient (LocalSpec;
// DiLoCo, Douillard et al. 2023). Runs the inner optimizer on the model's values, then overwrites
// the gradients with the push:
//   u = anchor - values
// The anchor is a copy of the pulled values.
//
// The optimizer state is kept between pushes and ends with this object. Local steps with a gradient
// that is not finite are skipped.
//
// Thread-compatible: used by the thread that computes gradients. Borrows its constructor's
// arguments. Uses one float per trained element on the device for the anchor, in addition to the
// inner optimizer's state.
class LocalSteps {
 public:
  // `job` must be normalized, completed, and use local steps. `compute` leaves the gradient of a
  // local step in `model` (Learner::Options::local_steps). Errors as for InnerOptimizer::Create().
  // INVALID_ARGUMENT if the model is on several devices.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(const JobSpec& job, FlatModel* model,
                                                            ComputeGradient compute,
                                                            const Clock* clock);

  // Like Learner::Compute(), for all local steps together. `loss_sum` covers all samples, each at
  // the values that its local step began with. For a local step whose loss is not finite, the mean
  // loss of the others is assumed; if no loss is finite, neither is `loss_sum`.
  //
  // Calls the observer when the local steps are done and gradients() are about to be overwritten,
  // but not for blocks. The caller then pushes gradients() and averaged(), unless `finite` is kNo
  // or kOverflow. kOverflow: all local steps overflowed. kNo: the optimizer took no step and at
  // least one gradient was not finite, or one was not finite and training.nonfinite is STOP_JOB.
  absl::StatusOr<Learner::Gradient> Compute(const StepWork& step, Learner::Observer* observer);

 private:
  LocalSteps(const JobSpec& job, Schedule schedule, std::unique_ptr<InnerOptimizer> optimizer,
             FlatModel* model, ComputeGradient compute, const Clock* clock);

  // Returns the number of samples per local step, for a push of `samples` samples. The last local
  // step gets the rest.
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
  // The number of local steps begun by this object.
  int64_t steps_ = 0;
};

}  // namespace torchps
