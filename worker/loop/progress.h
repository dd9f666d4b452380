#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/ids.h"

namespace torchps {

// Adds up steps and turns them, once per interval, into a line for people and for psctl. Not
// thread-safe; time is handed in.
class Progress {
 public:
  Progress(SlotId slot, absl::Duration interval, absl::Duration now);

  // A step of `samples` samples with the sum of their losses, of which `waited` was spent waiting.
  // What is not finite is left out of the mean, which is nan where nothing else is left.
  void Add(int64_t samples, double loss_sum, absl::Duration waited);

  // A line when `interval` has passed since the last one and there was a step, else empty.
  std::string Line(int epoch, Step step, absl::Duration now);

 private:
  const SlotId slot_;
  const absl::Duration interval_;
  absl::Duration since_;
  int64_t samples_ = 0;
  int64_t loss_samples_ = 0;  // those of loss_sum_
  double loss_sum_ = 0;
  absl::Duration waited_;
};

}  // namespace torchps
