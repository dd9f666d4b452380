#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace torch::nn {
class Module;
}

namespace torchps {

// What an objective sees of one forward pass. All tensors are on the module's device.
struct Pass {
  // The task's module, for a penalty on its parameters, say. Borrowed.
  torch::nn::Module* module = nullptr;
  // What forward() gave: one tensor, or all that it returned.
  std::vector<torch::Tensor> outputs;
  Batch batch;
  // The steps that this worker had taken before; in an evaluation 0.
  int64_t step = 0;

  const torch::Tensor& output() const { return outputs.front(); }
};

// A figure that evaluations report beside the loss: the sum of `sum` over all batches of the test
// set, divided by that of `weight`.
struct Metric {
  struct Part {
    double sum = 0;
    double weight = 0;
  };

  // Letters, digits, '_'; not "loss", and no two of one objective. "accuracy", 0 to 1, is printed
  // in per cent.
  std::string name;
  std::function<Part(const Pass& pass)> measure;
  bool lower_is_better = false;
};

// What training minimises and what evaluations measure.
//
// A value. Its functions should have no state: copies may be used by several threads.
struct Objective {
  using Loss = std::function<torch::Tensor(const Pass& pass)>;

  // `loss` takes a Pass, or of models with one output an output and a target, and returns a scalar
  // that backward() starts from: the mean over the batch's samples, so that losses and gradients of
  // batches of different sizes can be averaged with the sample counts as weights. Evaluations are
  // compared by the first metric, without one by the loss; training.best_by names another.
  template <typename Function>
  Objective(Function loss, std::vector<Metric> metrics = {}) : metrics(std::move(metrics)) {
    if constexpr (std::is_invocable_v<Function, const torch::Tensor&, const torch::Tensor&>) {
      this->loss = [loss = std::move(loss)](const Pass& pass) {
        return loss(pass.output(), pass.batch.target);
      };
    } else {
      this->loss = std::move(loss);
    }
  }

  Loss loss;
  std::vector<Metric> metrics;
};

// "accuracy": the part of the predictions, output.argmax(-1), that are the target.
Metric Accuracy();

// Classification: output [B, V] are unnormalised log probabilities, target int64 [B] the classes.
Objective CrossEntropy();

// The same at every position: output [B, T, V], target int64 [B, T], loss the mean over B * T.
Objective NextByteCrossEntropy();

// Regression: output and target of one shape, loss the mean over all elements. No metric.
Objective MeanSquaredError();

}  // namespace torchps
