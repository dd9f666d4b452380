#include "worker/metric_names.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {

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
