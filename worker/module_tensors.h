#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "torch/nn/module.h"
#include "torch/types.h"

namespace torchps {

// The tensors of a module that are sent:
//   - a parameter with requires_grad is trained; one registered under several names (tied) has one
//     segment, under its first name;
//   - a float buffer (batch-norm running statistics) is averaged over workers;
//   - a frozen parameter (requires_grad = false) and an integer or boolean buffer
//     (num_batches_tracked) is not sent at all: each worker keeps its own, the same in all of them
//     if they start from the same seed and nothing writes to it.
// Everything that is sent must be dense float32. A value; the tensors are the module's own.
struct ModuleTensors {
  // Index of the optimizer's parameter group for a parameter's name, -1 for none.
  using GroupOf = std::function<int(const std::string& name)>;

  ModelLayout layout;
  // Those of the layout's segments, in their order.
  std::vector<torch::Tensor> tensors;
};

// Looks at `module`, and touches nothing. INVALID_ARGUMENT names the tensor: not float32, not
// dense, two tensors that share elements without being one, a float buffer that is not finite,
// nothing to train. Throws what torch throws.
absl::StatusOr<ModuleTensors> FindTensors(const torch::nn::Module& module,
                                          const ModuleTensors::GroupOf& group_of);

// Only how they would be laid out.
absl::StatusOr<ModelLayout> LayoutOfModule(const torch::nn::Module& module,
                                           const ModuleTensors::GroupOf& group_of);

}  // namespace torchps
