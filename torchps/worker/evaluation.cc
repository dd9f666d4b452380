#include "torchps/worker/evaluation.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {

void SetEvaluation(const Evaluation& evaluation, EvaluationResult* result) {
  result->set_samples(evaluation.samples);
  result->set_loss(evaluation.loss);
  for (const Evaluation::Value& value : evaluation.metrics) {
    MetricValue& metric = *result->add_metric();
    metric.set_name(value.name);
    metric.set_value(value.value);
    metric.set_lower_is_better(value.lower_is_better);
  }
}

absl::Status MetricSums::Add(const Pass& pass) {
  const absl::StatusOr<Loss> loss = GetLoss(objective_, pass);
  if (!loss.ok()) return loss.status();
  samples_ += pass.batch.input.size(0);
  loss_sum_ += loss->sum();
  loss_weight_ += loss->weight;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Metric& metric = objective_.metrics[i];
    if (metric.add != nullptr) {
      metric.add(pass, states_[i]);
      continue;
    }
    const Metric::Part part = metric.measure(pass);
    parts_[i].sum += part.sum;
    parts_[i].weight += part.weight;
  }
  return absl::OkStatus();
}

Evaluation MetricSums::Result() const {
  Evaluation evaluation;
  if (samples_ == 0) return evaluation;
  evaluation.samples = samples_;
  evaluation.loss = loss_sum_ / loss_weight_;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Metric& metric = objective_.metrics[i];
    const double value =
        metric.add != nullptr ? metric.value(states_[i]) : parts_[i].sum / parts_[i].weight;
    evaluation.metrics.push_back({metric.name, value, metric.lower_is_better, states_[i]});
  }
  return evaluation;
}

absl::Status CheckMetrics(const Objective& objective, const std::string& best_by) {
  std::set<std::string> names = {"loss"};
  for (const Metric& metric : objective.metrics) {
    const bool is_name = !metric.name.empty() &&
                         std::all_of(metric.name.begin(), metric.name.end(), [](char character) {
                           return absl::ascii_isalnum(character) || character == '_';
                         });
    if (!is_name) {
      return absl::InvalidArgumentError(absl::StrCat("the objective has a metric named '",
                                                     metric.name,
                                                     "'; expected letters, digits and '_'"));
    }
    if (!names.insert(metric.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the objective has two metrics named '", metric.name, "'"));
    }
  }
  if (best_by.empty() || names.count(best_by) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "training.best_by is \"", best_by, "\"; this program measures ", absl::StrJoin(names, ", ")));
}

}  // namespace torchps
