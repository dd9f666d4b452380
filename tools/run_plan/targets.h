#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/report.pb.h"

namespace torchps {

// The targets of `psctl run --target=METRIC:VALUE`, and when the run's evaluator
// (program/live_evaluator.h) first met each. Not thread-safe; copyable.
class Targets {
 public:
  // What a line of the evaluator's leads to.
  struct Heard {
    std::string row;                 // what it has measured, in a few words
    std::vector<std::string> lines;  // of each target that it has met just now
  };

  // "METRIC:VALUE". INVALID_ARGUMENT says what is wrong, or that a target is named twice.
  static absl::StatusOr<Targets> Parse(const std::vector<std::string>& values);

  // INVALID_ARGUMENT: a target's metric is not in `names`.
  absl::Status CheckMetrics(const std::vector<std::string>& names) const;

  bool empty() const { return targets_.empty(); }

  // Takes one line of JSON. Lower is better for the loss and for the metrics that the line says so
  // of; a value that is not finite meets nothing.
  // INVALID_ARGUMENT: it has no metric of a target's name; or is no such line.
  absl::StatusOr<Heard> Hear(absl::string_view line);

  // In the order typed.
  const std::vector<Report::Target>& reached() const { return targets_; }

 private:
  std::vector<Report::Target> targets_;
};

// What a line of output begins with where a process has measured something.
bool IsMeasured(absl::string_view line);

}  // namespace torchps
