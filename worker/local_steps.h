#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/element_runs.h"
#include "job/schedule.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/flat_model.h"
#include "worker/learner.h"
#include "worker/optimizer/inner_optimizer.h"

namespace torchps {

// Local steps in place of one gradient (LocalSpec; DiLoCo, Douillard et al. 2023): steps of the
// inner optimizer on the model's values, and then, where the gradients were, what is pushed:
//   u = anchor - values
// The anchor is what was pulled: with fragments each block's from the latest pull that brought it.
// So the steps of a worker whose others wait for their turn go on from its own values.
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
  // INVALID_ARGUMENT: a server has fewer trained blocks than there are fragments.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(const JobSpec& job,
                                                            const BlockMap& block_map,
                                                            FlatModel* model,
                                                            ComputeGradient compute,
                                                            const Clock* clock);

  // As Learner::Compute(), for all steps together: `loss_sum` is over all samples, each at the
  // values that its step began with, and those of steps whose loss was not finite at the mean of
  // the others; not finite where none was. The observer hears that the steps are done and
  // gradients() about to be overwritten, and of no block. What is left in gradients() and
  // averaged() is to be pushed: zero outside of the pushed fragment, which is absent. `finite` is
  // kNo where nothing is to be pushed: no step could be taken, or one could not and the job says
  // STOP_JOB.
  absl::StatusOr<Learner::Gradient> Compute(const Learner::Step& step, Learner::Observer* observer);

 private:
  LocalSteps(const JobSpec& job, const BlockMap& block_map, Schedule schedule,
             std::unique_ptr<InnerOptimizer> optimizer, FlatModel* model, ComputeGradient compute,
             const Clock* clock);

  // Samples of each step but perhaps the last, which has the rest.
  int64_t SamplesOfStep(int64_t samples) const;
  // What has been pulled is where the steps begin.
  void DropAnchor(int fragment);
  // Leaves the difference in the model's gradients.
  absl::Status WriteDifference(int fragment);
  // With fragments, where a device's values are copied from the host's as a whole: those that the
  // next pull does not bring have to be there.
  void KeepOwnValues(const torch::Tensor& values);

  const JobSpec job_;
  const Schedule schedule_;
  const std::unique_ptr<InnerOptimizer> optimizer_;
  FlatModel* const model_;
  const ComputeGradient compute_;
  const Clock* const clock_;
  // By fragment, its trained elements and all others; none where all are pushed at once.
  std::vector<ElementRuns> inside_;
  std::vector<ElementRuns> outside_;
  // By fragment: those inside that no step has reached since the fragment's anchor was dropped.
  std::vector<ElementRuns> unreached_;
  torch::Tensor anchor_;
  // Steps begun in the life of this object.
  int64_t steps_ = 0;
};

}  // namespace torchps
