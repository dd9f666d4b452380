#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/evaluation.h"
#include "worker/objective.h"

namespace torchps {

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
