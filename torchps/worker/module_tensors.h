#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torch/nn/module.h"
#include "torch/types.h"
#include "torchps/common/model_layout.h"

namespace torchps {

// The tensors of a module that workers and servers exchange:
//   - A parameter with requires_grad is trained. A tied parameter, registered under several names,
//     has one segment, under its first name.
//   - A float32 buffer (batch-norm running statistics) is averaged over workers.
//   - A frozen parameter (requires_grad = false) and a buffer of another type (num_batches_tracked,
//     float16, complex64) are constants. Each worker keeps its own, and the model file has those of
//     the worker that writes it. They agree if workers start from one seed and training does not
//     change them.
// Trained parameters must be dense float32. This is a value type; it shares the module's tensors.
struct ModuleTensors {
  // Returns the index of the optimizer's parameter group for a parameter name, or -1.
  using GetGroup = std::function<int(const std::string& name)>;

  ModelLayout layout;
  // The tensors of the layout's segments, in order.
  std::vector<torch::Tensor> tensors;
};

// Finds the tensors without changing the module. INVALID_ARGUMENT names a trained tensor that is
// not dense float32, a constant that a model file cannot store, two tensors that share elements, or
// a float32 buffer that is not finite. Also returned if there is no parameter to train. Throws
// torch's exceptions.
absl::StatusOr<ModuleTensors> FindTensors(const torch::nn::Module& module,
                                          const ModuleTensors::GetGroup& group_of);

// Returns only the layout.
absl::StatusOr<ModelLayout> LayoutOfModule(const torch::nn::Module& module,
                                           const ModuleTensors::GetGroup& group_of);

}  // namespace torchps
