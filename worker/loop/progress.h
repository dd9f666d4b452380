#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps {

// Accumulates steps and formats them, once per interval, as a progress line for users and for
// psctl. Not thread-safe. The caller passes the time.
class Progress {
 public:
  Progress(SlotId slot, absl::Duration interval, absl::Duration now);

  // Adds a step of `samples` samples. `loss_sum` is the sum of the losses and `waited` the waiting
  // time within the step. A loss that is not finite is excluded from the mean; the mean is nan if
  // no other loss is left.
  void Add(int64_t samples, double loss_sum, absl::Duration waited);

  // Returns a line if `interval` has passed since the last line and a step was added; otherwise "".
  std::string Line(int epoch, Step step, absl::Duration now);

 private:
  const SlotId slot_;
  const absl::Duration interval_;
  absl::Duration since_;
  int64_t samples_ = 0;
  int64_t loss_samples_ = 0;  // the samples of loss_sum_
  double loss_sum_ = 0;
  absl::Duration waited_;
};

}  // namespace torchps
