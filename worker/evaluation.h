#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/coordinator.pb.h"
#include "worker/objective.h"

namespace torchps {

// The result of evaluating a model on a test set.
struct Evaluation {
  struct Value {
    std::string name;  // Metric::name
    double value = 0;
    bool lower_is_better = false;
    std::vector<double> state = {};  // of a metric with state
  };

  int64_t samples = 0;  // 0: no samples were evaluated
  double loss = 0;      // mean over samples
  std::vector<Value> metrics;

  // Returns the value of the metric `name`, or 0 if it is not in `metrics`.
  double metric(const std::string& name) const {
    for (const Value& value : metrics) {
      if (value.name == name) return value.value;
    }
    return 0;
  }
};

// Sets samples, loss and metrics of the result for the coordinator.
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

  // Returns errors of GetLoss(). Throws the objective's exceptions.
  absl::Status Add(const Pass& pass);

  // Returns the result over all passes so far. `samples` is 0 before the first pass.
  Evaluation Result() const;

 private:
  const Objective& objective_;
  int64_t samples_ = 0;
  double loss_sum_ = 0;
  double loss_weight_ = 0;
  // Each metric uses one of the two, for Metric::measure and Metric::add respectively.
  std::vector<Metric::Part> parts_;
  std::vector<std::vector<double>> states_;
};

// INVALID_ARGUMENT if metric names are not printable or not distinct. Also returned if `best_by`
// (training.best_by) is neither empty, nor "loss", nor a metric name.
absl::Status CheckMetrics(const Objective& objective, const std::string& best_by);

}  // namespace torchps
