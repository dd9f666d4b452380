#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/data/dataset.h"
#include "torchps/data/preprocessing.h"

namespace torch::nn {
class Module;
}

namespace torchps {

// A forward pass, as input of an objective. All tensors are on the module's device.
struct Pass {
  // The task's module, for example for a penalty on parameters. Borrowed.
  torch::nn::Module* module = nullptr;
  // The outputs of forward(): one tensor, or all returned tensors.
  std::vector<torch::Tensor> outputs;
  // The batch that forward() got.
  Batch batch;
  // The number of steps this worker took before. 0 in an evaluation.
  int64_t step = 0;
  // The preprocessing of the task's data. Borrowed; may be null.
  const Preprocessing* preprocessing = nullptr;

  // Returns the first output.
  const torch::Tensor& output() const { return outputs.front(); }
  // Converts regression predictions, or the numbers in `batch.target`, to the units of the data.
  torch::Tensor Numbers(const torch::Tensor& scaled) const {
    return preprocessing == nullptr ? scaled : preprocessing->Numbers(scaled);
  }
};

// A metric that evaluations report in addition to the loss. The value is the total of `sum` over
// all batches of the test set, divided by the total of `weight`.
struct Metric {
  // A batch's part of a metric.
  struct Part {
    double sum = 0;     // for example the number of correct predictions
    double weight = 0;  // for example the number of samples
  };

  // Letters, digits and '_', distinct within an objective, and not "loss". "accuracy", from 0 to 1,
  // is printed as a percentage.
  std::string name;
  // Returns a batch's part.
  std::function<Part(const Pass& pass)> measure;
  // True for an error, false for an accuracy.
  bool lower_is_better = false;
  // Replaces `measure` for a metric that is not a mean over batches: adds a batch to the state,
  // which starts empty.
  std::function<void(const Pass& pass, std::vector<double>& state)> add = nullptr;
  // Returns the metric for a state of `add`.
  std::function<double(const std::vector<double>& state)> value = nullptr;
};

// The loss of a batch if it is not a mean over samples, for example for a language model with
// padding or for weighted classes. Over several batches, the loss is the total of `sum` divided by
// the total of `weight`.
struct WeightedLoss {
  torch::Tensor sum;  // a scalar that backward() starts from
  // not negative: the number of counted tokens, or the sum of the targets' weights
  double weight = 0;
};

// The loss of a batch.
struct Loss {
  // Returns the loss summed over the batch: the mean times the weight. Without a gradient.
  double sum() const { return mean.item<double>() * weight; }

  // Returns this batch's part of the loss of a step, for backward() to start from. `samples` and
  // `step_samples` are the sizes of the batch and the step. The parts add up to the mean over
  // samples, or to a WeightedLoss's sum divided by the step's samples.
  torch::Tensor GetPart(double samples, double step_samples) const;

  torch::Tensor mean;
  torch::Tensor weighted_sum;  // WeightedLoss::sum; undefined if the loss is a mean over samples
  double weight = 0;           // number of samples, or WeightedLoss::weight
};

// The loss to minimize and the metrics to report.
//
// A value type. The functions should be stateless, because several threads may use copies.
struct Objective {
  // `loss` is called with a Pass, or, for models with one output, with an output and a target. It
  // must return either a scalar (the mean over the batch's samples) or a WeightedLoss. With either,
  // several workers train like one process. Evaluations are compared by the first metric, or by the
  // loss if there is none; training.best_by overrides this.
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

  // Returns the mean loss of a batch; for a WeightedLoss, the sum divided by the weight.
  std::function<torch::Tensor(const Pass& pass)> loss;
  // Null if the loss is a mean over samples.
  std::function<WeightedLoss(const Pass& pass)> weighted_loss;
  // The metrics to report.
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

// Returns the objective's loss of a batch. INVALID_ARGUMENT if it is not a scalar, or if the weight
// is negative or not finite. Throws the objective's exceptions.
absl::StatusOr<Loss> GetLoss(const Objective& objective, const Pass& pass);

// "accuracy": the fraction of predictions, output.argmax(-1), that equal the target.
Metric Accuracy();

// "top5_accuracy": the fraction of targets among the five largest outputs [B, V].
Metric Top5Accuracy();

// "macro_f1": the mean over classes of the F1 score (C. J. van Rijsbergen, 1979), ignoring classes
// that are neither predicted nor targets. The state is the confusion matrix: element t * classes +
// p counts samples of class t predicted as p.
Metric MacroF1(int64_t classes);

// "auc": the area under the ROC curve for two classes. The output is [B, 2], or one score per
// sample. The area is the fraction of pairs from both classes in which class 1 scores higher; ties
// count half. NaN unless both classes occur.
//
// The state consists of triples: a score, the number of samples of class 0 with this score, and the
// number of samples of class 1. States of several workers can be concatenated. The area is exact up
// to 2^20 samples. Larger states merge neighboring scores, which changes the area by about
// 0.000001.
Metric AreaUnderRoc();

// "perplexity": e to the power of the mean cross entropy of outputs [B, T, V] and targets [B, T].
Metric Perplexity();

// "rmse": the root mean squared error over all numbers [B, K], in the units of the data.
Metric RootMeanSquaredError();
// "mae": the mean absolute error over all numbers [B, K], in the units of the data.
Metric MeanAbsoluteError();
// "r2": 1 - squared error / squared distance from the test set's mean, averaged over the K numbers.
Metric R2();

// Classification: `output` [B, V] are unnormalized log probabilities, `target` int64 [B] the
// classes. If `classes` is given, the metrics besides accuracy are macro_f1 (up to 1000 classes),
// top5_accuracy (from 6 classes) and auc (2 classes).
Objective CrossEntropy(int64_t classes = 0);

// Classification at each position: output [B, T, V], target int64 [B, T], loss the mean over B * T.
// Metrics: accuracy, perplexity.
Objective NextByteCrossEntropy();

// Regression: output and target of equal shape. The loss is the mean over all elements, in scaled
// numbers if the data are scaled. Metrics: rmse, mae, r2.
Objective MeanSquaredError();

}  // namespace torchps
