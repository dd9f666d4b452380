#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torch/types.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// The optimizer for a worker's local steps (LocalSpec.inner). Runs torch::optim in place on a
// module's parameters, on any device. The optimizer state, such as moments, is kept between pushes
// and ends with this object.
//
// Thread-compatible: used by the computing thread. Keeps the parameters alive.
class InnerOptimizer {
 public:
  virtual ~InnerOptimizer() = default;

  // `spec` must be normalized. `parameters` correspond to the layout's trained segments, in order.
  // INVALID_ARGUMENT if a group in `spec` does not match any parameter.
  static absl::StatusOr<std::unique_ptr<InnerOptimizer>> Create(
      const OptimizerSpec& spec, const ModelLayout& layout,
      const std::vector<torch::Tensor>& parameters);

  // Makes a step with the parameters' gradients. `rate_factor`, from the schedule, multiplies the
  // learning rate. `absent` are the elements that the step did not reach: their parameters keep
  // values and state, as in torch.optim, and have undefined gradients afterwards. Throws torch's
  // exceptions.
  virtual void Step(double rate_factor, absl::Span<const ElementRun> absent) = 0;
};

}  // namespace torchps
