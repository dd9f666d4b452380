#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"
#include "torch/types.h"

namespace torchps {

// The optimizer of a worker's local steps (LocalSpec.inner): torch::optim's, in place on a module's
// parameters, wherever they are. Its state, such as moments, goes on from one push to the next and
// lives as long as this object.
//
// Thread-compatible. Keeps the parameters alive; used by the thread that computes.
class InnerOptimizer {
 public:
  virtual ~InnerOptimizer() = default;

  // `spec` is normalised; `parameters` are those of the layout's trained segments, in their order.
  // INVALID_ARGUMENT: a group of `spec` that is no parameter's.
  static absl::StatusOr<std::unique_ptr<InnerOptimizer>> Create(
      const OptimizerSpec& spec, const ModelLayout& layout,
      const std::vector<torch::Tensor>& parameters);

  // A step with the parameters' gradients. `rate_factor`, of the schedule, multiplies the learning
  // rate. Parameters whose elements are `absent` have no gradient and are left alone, their state
  // too, as torch.optim does; their gradients are undefined afterwards. What torch throws is
  // thrown.
  virtual void Step(double rate_factor, absl::Span<const ElementRun> absent) = 0;
};

}  // namespace torchps
