#pragma once

#include <cstddef>
#include <exception>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "torch/nn/module.h"

namespace torchps {

// Converts an exception of torch, or of user code that calls torch, to INTERNAL with the message
// "`what` failed: " and the first line of the exception's message. Drops the other lines: torch
// appends a backtrace, and CUDA appends debugging advice.
absl::Status TorchError(absl::string_view what, const std::exception& error);

// TorchError() for the current exception, which may have any type, because user code may throw any.
// REQUIRES: called in a catch block.
absl::Status ThrownError(absl::string_view what);

// Puts `module` into training mode by calling train(), which the module may override. Layers that
// were in evaluation mode, such as frozen batch norm, stay in it, unless `module` itself was in
// evaluation mode. Throws train()'s exceptions.
void BeginTraining(torch::nn::Module& module);

// Puts a module into evaluation mode for this object's lifetime, then restores the mode of each
// layer. Evaluating therefore does not affect training. Thread-compatible. Borrows the module.
class EvaluationMode {
 public:
  // Throws train()'s exceptions.
  explicit EvaluationMode(torch::nn::Module& module);
  // REQUIRES: train() does not throw.
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  // For each layer, true if it was in training mode. A layer precedes the layers inside it.
  std::vector<bool> modes_;
};

}  // namespace torchps
