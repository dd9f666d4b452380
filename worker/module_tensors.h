#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "torch/nn/module.h"
#include "torch/types.h"

namespace torchps {

// The tensors of a module that workers and servers exchange:
//   - A parameter with requires_grad is trained. A tied parameter, registered under several names,
//     has one segment, under its first name.
//   - A float32 buffer (batch-norm running statistics) is averaged over workers.
//   - A frozen parameter (requires_grad = false) and a buffer of another type (num_batches_tracked,
//     float16, complex64) are constants. Each worker keeps its own, and the model file has those of
//     the worker that writes it. They agree if workers start from one seed and training does not
//     change them.
// Trained parameters must be dense float32. A value; the tensors are the module's own.
struct ModuleTensors {
  // Returns the index of the optimizer's parameter group for a parameter's name, -1 for none.
  using GetGroup = std::function<int(const std::string& name)>;

  ModelLayout layout;
  // The tensors of the layout's segments, in their order.
  std::vector<torch::Tensor> tensors;
};

// Finds them without touching the module. INVALID_ARGUMENT names the tensor: a trained one that is
// not dense float32, a constant that no model file holds, two tensors that share elements without
// being one, a float32 buffer that is not finite, nothing to train. Throws what torch throws.
absl::StatusOr<ModuleTensors> FindTensors(const torch::nn::Module& module,
                                          const ModuleTensors::GetGroup& group_of);

// Returns the layout only.
absl::StatusOr<ModelLayout> LayoutOfModule(const torch::nn::Module& module,
                                           const ModuleTensors::GetGroup& group_of);

}  // namespace torchps
