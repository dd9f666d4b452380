#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace torchps
