#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/proto/report.pb.h"

namespace torchps {

// The targets of `psctl run --target=METRIC:VALUE`, and the time when the evaluator
// (torchps/program/live_evaluator.h) first met each. Not thread-safe; copyable.
class Targets {
 public:
  // Text to show for a line of the evaluator.
  struct Heard {
    std::string row;                 // the measurement, in a few words
    std::vector<std::string> lines;  // one for each newly met target
  };

  // Parses "METRIC:VALUE". INVALID_ARGUMENT: invalid syntax, or duplicate targets.
  static absl::StatusOr<Targets> Parse(const std::vector<std::string>& values);

  // INVALID_ARGUMENT: a target's metric is not in `names`.
  absl::Status CheckMetrics(const std::vector<std::string>& names) const;

  bool empty() const { return targets_.empty(); }

  // Parses one JSON line of the evaluator. Lower is better for the loss and the metrics in
  // "lower_is_better". Non-finite values do not meet a target. INVALID_ARGUMENT: malformed line, or
  // a target's metric is missing.
  absl::StatusOr<Heard> Hear(absl::string_view line);

  // In command-line order.
  const std::vector<Report::Target>& reached() const { return targets_; }

 private:
  std::vector<Report::Target> targets_;
};

// Returns true if the line is a measurement.
bool IsMeasured(absl::string_view line);

}  // namespace torchps
