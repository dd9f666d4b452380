#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/objective.h"

namespace torchps {

// The result of evaluating a model on a test set.
struct Evaluation {
  // The value of one metric.
  struct Value {
    std::string name;                // Metric::name
    double value = 0;                // of the metric over the test set
    bool lower_is_better = false;    // Metric::lower_is_better
    std::vector<double> state = {};  // from Metric::add; empty without it
  };

  int64_t samples = 0;         // 0: no samples were evaluated
  double loss = 0;             // mean over samples
  std::vector<Value> metrics;  // in the objective's order

  // Returns the value of the metric `name`, or 0 if it is not in `metrics`.
  double metric(const std::string& name) const {
    for (const Value& value : metrics) {
      if (value.name == name) return value.value;
    }
    return 0;
  }
};

// Copies samples, loss and metrics to `result`, the message to the coordinator.
void SetEvaluation(const Evaluation& evaluation, EvaluationResult* result);

// Accumulates an objective's loss and metrics over the passes of an evaluation.
//
// Not thread-safe. Borrows the objective.
class MetricSums {
 public:
  explicit MetricSums(const Objective* objective)
      : objective_(*objective),
        parts_(objective->metrics.size()),
        states_(objective->metrics.size()) {}

  // Adds a pass. Returns errors of GetLoss(). Throws the objective's exceptions.
  absl::Status Add(const Pass& pass);

  // Returns the result over all passes so far. `samples` is 0 before the first pass.
  Evaluation Result() const;

 private:
  const Objective& objective_;
  int64_t samples_ = 0;
  double loss_sum_ = 0;
  double loss_weight_ = 0;
  // By metric. A metric with Metric::add uses `states_`; any other metric uses `parts_`.
  std::vector<Metric::Part> parts_;
  std::vector<std::vector<double>> states_;
};

// INVALID_ARGUMENT if a metric's name is empty, is "loss", occurs twice, or has characters other
// than letters, digits and '_'; or if `best_by` (training.best_by) is neither empty, nor "loss",
// nor a metric's name.
absl::Status CheckMetrics(const Objective& objective, const std::string& best_by);

}  // namespace torchps
