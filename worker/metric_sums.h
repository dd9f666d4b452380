#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/evaluation.h"
#include "worker/objective.h"

namespace torchps {

// The loss and the metrics of an objective, added up over the passes of an evaluation.
//
// Not thread-safe. Borrows the objective.
class MetricSums {
 public:
  explicit MetricSums(const Objective* objective)
      : objective_(*objective),
        parts_(objective->metrics.size()),
        states_(objective->metrics.size()) {}

  // Errors of GetLoss(). Throws what the objective throws.
  absl::Status Add(const Pass& pass);

  // Over all passes so far; without `samples` where there was none.
  Evaluation Result() const;

 private:
  const Objective& objective_;
  int64_t samples_ = 0;
  double loss_sum_ = 0;
  double loss_weight_ = 0;
  // Of each metric one or the other (Metric::measure, Metric::add).
  std::vector<Metric::Part> parts_;
  std::vector<std::vector<double>> states_;
};

// Returns INVALID_ARGUMENT unless the metrics have different names that can be printed, and
// training.best_by, where it is not empty, is one of them or "loss".
absl::Status CheckMetrics(const Objective& objective, const std::string& best_by);

}  // namespace torchps
