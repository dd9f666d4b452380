#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/preprocessing.h"

namespace torch::nn {
class Module;
}

namespace torchps {

// One forward pass, for an objective. All tensors are on the module's device.
struct Pass {
  // The task's module, for a penalty on its parameters, say. Borrowed.
  torch::nn::Module* module = nullptr;
  // The outputs of forward(): one tensor, or all that it returned.
  std::vector<torch::Tensor> outputs;
  Batch batch;
  // The steps that this worker had taken before; in an evaluation 0.
  int64_t step = 0;
  // Of the task's data. Borrowed; may be null.
  const Preprocessing* preprocessing = nullptr;

  const torch::Tensor& output() const { return outputs.front(); }
  // Numbers that a regression predicts, or that `batch.target` holds, in the units of the data.
  torch::Tensor Numbers(const torch::Tensor& scaled) const {
    return preprocessing == nullptr ? scaled : preprocessing->Numbers(scaled);
  }
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
  // In place of `measure`, for a figure of the whole test set that is no mean over batches: `add`
  // takes a batch into the state, which starts empty, and `value` computes the figure from it.
  std::function<void(const Pass& pass, std::vector<double>& state)> add = nullptr;
  std::function<double(const std::vector<double>& state)> value = nullptr;
};

// The loss of a batch that is no mean over its samples: of a language model with padding, of
// classes with weights. The loss of several batches is the sum of `sum` by the sum of `weight`.
struct WeightedLoss {
  torch::Tensor sum;  // a scalar that backward() starts from
  double weight = 0;  // not negative; how many tokens count, the sum of the targets' weights
};

// The loss of a batch.
struct Loss {
  // The sum over what counts, without its gradient.
  double sum() const { return mean.item<double>() * weight; }

  // The part of a step of `step_samples` that this batch of `samples` adds, for backward() to start
  // from: of the mean over samples, or of a WeightedLoss the sum by the step's samples.
  torch::Tensor GetPart(double samples, double step_samples) const;

  torch::Tensor mean;
  torch::Tensor weighted_sum;  // WeightedLoss::sum; undefined: the loss is a mean over samples
  double weight = 0;           // samples, or WeightedLoss::weight
};

// What training minimises and what evaluations measure.
//
// A value. Its functions should have no state: copies may be used by several threads.
struct Objective {
  // `loss` takes a Pass, or of models with one output an output and a target. It returns a scalar,
  // the mean over the batch's samples, or a WeightedLoss, so that a job with several workers learns
  // what one process learns. Evaluations are compared by the first metric, without one by the loss;
  // training.best_by names another.
  template <typename Function>
  Objective(Function loss, std::vector<Metric> metrics = {}) : metrics(std::move(metrics)) {
    if constexpr (std::is_invocable_v<Function, const torch::Tensor&, const torch::Tensor&>) {
      Take([loss = std::move(loss)](const Pass& pass) {
        return loss(pass.output(), pass.batch.target);
      });
    } else {
      Take(std::move(loss));
    }
  }

  // The mean of a batch. Of a WeightedLoss the sum by the weight.
  std::function<torch::Tensor(const Pass& pass)> loss;
  // Null: the loss is a mean over samples.
  std::function<WeightedLoss(const Pass& pass)> weighted_loss;
  std::vector<Metric> metrics;

 private:
  template <typename Function>
  void Take(Function function) {
    if constexpr (std::is_convertible_v<std::invoke_result_t<Function, const Pass&>,
                                        WeightedLoss>) {
      weighted_loss = std::move(function);
      loss = [weighted = weighted_loss](const Pass& pass) {
        const WeightedLoss value = weighted(pass);
        return value.sum / value.weight;
      };
    } else {
      loss = std::move(function);
    }
  }
};

// The objective's loss of a batch. INVALID_ARGUMENT: it is no scalar, or its weight is negative or
// not finite. Throws what the objective throws.
absl::StatusOr<Loss> GetLoss(const Objective& objective, const Pass& pass);

// "accuracy": the part of the predictions, output.argmax(-1), that are the target.
Metric Accuracy();

// "top5_accuracy": the part of the targets among the five largest outputs [B, V].
Metric Top5Accuracy();

// "macro_f1": the mean over classes of the F1 score (C. J. van Rijsbergen, 1979); a class that is
// neither predicted nor a target is left out. Its state is the confusion matrix: element
// t * classes + p counts samples of class t that were predicted as p.
Metric MacroF1(int64_t classes);

// "auc": the area under the ROC curve of two classes, for outputs [B, 2], or one score a sample:
// the part of all pairs of both classes in which class 1 has the higher score; equal scores count
// half. NaN without samples of both classes. Its state is triples of a score and its numbers of
// samples of class 0 and 1; states of several workers may be appended to each other. It is exact up
// to 2^20 samples. A larger state merges neighbouring scores, which changes the area by about
// 0.000001.
Metric AreaUnderRoc();

// "perplexity": e to the mean cross entropy of outputs [B, T, V] and targets [B, T].
Metric Perplexity();

// "rmse", "mae": root of the mean squared error, and mean absolute error, over all numbers
// [B, K], in the units of the data. "r2": 1 - squared error / squared distance from the mean of the
// test set, the mean over the K numbers.
Metric RootMeanSquaredError();
Metric MeanAbsoluteError();
Metric R2();

// Classification: output [B, V] are unnormalised log probabilities, target int64 [B] the classes.
// With `classes`, macro_f1 is measured beside the accuracy (up to 1000 classes), top5_accuracy
// (from 6 classes), and auc (2 classes).
Objective CrossEntropy(int64_t classes = 0);

// The same at every position: output [B, T, V], target int64 [B, T], loss the mean over B * T.
// Metrics: accuracy, perplexity.
Objective NextByteCrossEntropy();

// Regression: output and target of one shape, loss the mean over all elements, of scaled numbers
// where the data are scaled. Metrics: rmse, mae, r2.
Objective MeanSquaredError();

}  // namespace torchps
