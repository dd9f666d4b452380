#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "torchps/proto/coordinator.pb.h"

namespace torchps {

// Returns the metric called `name`, or null if the evaluation does not contain it.
inline const MetricValue* FindMetric(const EvaluationResult& result, const std::string& name) {
  for (const MetricValue& metric : result.metric()) {
    if (metric.name() == name) return &metric;
  }
  return nullptr;
}

// Returns the score by which a job's evaluations are compared; higher is better. `best_by` is the
// job's training.best_by. Returns nullopt if there is no evaluation, the score is not finite, or
// the metric is missing.
inline std::optional<double> GetScore(const EvaluationResult& result, const std::string& best_by) {
  if (result.samples() == 0 || !std::isfinite(result.loss())) return std::nullopt;
  if (best_by == "loss" || (best_by.empty() && result.metric().empty())) return -result.loss();
  const MetricValue* const metric =
      best_by.empty() ? &result.metric(0) : FindMetric(result, best_by);
  if (metric == nullptr || !std::isfinite(metric->value())) return std::nullopt;
  return metric->lower_is_better() ? -metric->value() : metric->value();
}

}  // namespace torchps
