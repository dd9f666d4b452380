#pragma once

#include "absl/time/time.h"

namespace torchps {

// Exponential moving average of a duration. Zero before the first value.
class SmoothedTime {
 public:
  void Add(absl::Duration newest) {
    value_ = value_ == absl::ZeroDuration() ? newest : value_ * (1 - kNewest) + newest * kNewest;
  }
  absl::Duration value() const { return value_; }

 private:
  static constexpr double kNewest = 0.2;

  absl::Duration value_;
};

}  // namespace torchps
