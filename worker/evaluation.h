#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torchps {

// What a model is worth on a test set.
struct Evaluation {
  struct Value {
    std::string name;  // as Metric's
    double value = 0;
    bool lower_is_better = false;
    std::vector<double> state = {};  // of a metric that has one
  };

  int64_t samples = 0;  // 0: there was nothing to evaluate on
  double loss = 0;      // mean over samples
  std::vector<Value> metrics;

  // The metric of this name; 0 where there is none.
  double metric(const std::string& name) const {
    for (const Value& value : metrics) {
      if (value.name == name) return value.value;
    }
    return 0;
  }
};

}  // namespace torchps
