#pragma once

#include <cstddef>
#include <vector>

#include "torch/nn/module.h"

namespace torchps {

// Puts `module` into training mode, as a loop of one's own does by train(), which it may override
// to keep layers as they are. Layers that are in evaluation mode before stay in it, unless all of
// the module is: batch norm with frozen statistics, say. Throws what train() throws.
void BeginTraining(torch::nn::Module& module);

// The module is in evaluation mode while this lives; then each layer is in the mode again that it
// was in. So it does not matter which worker evaluates. Thread-compatible. Borrows the module.
class EvaluationMode {
 public:
  // Throws what train() throws.
  explicit EvaluationMode(torch::nn::Module& module);
  // REQUIRES: train() does not throw.
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  // Whether each layer was in training mode, each before those in it.
  std::vector<bool> modes_;
};

}  // namespace torchps
