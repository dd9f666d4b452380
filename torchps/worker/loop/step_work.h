#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "torchps/common/types.h"

namespace torchps {

// The input of a step: the samples of a gradient. LeaseCursor sets the samples, their position and
// their job progress; StepLoop sets the rest. Learner, or the training loop of a program, computes
// the gradient with the model's current values.
struct StepWork {
  // Indices in the training data, valid until the next call of StepLoop::Next().
  absl::Span<const int64_t> samples;
  // The rest of the lease. The next steps will probably compute these samples, in this order.
  // Directly follows `samples` in memory, and becomes invalid with it.
  absl::Span<const int64_t> upcoming;
  int epoch = 0;  // from 1
  // The first sample's position in the epoch order.
  int64_t position = 0;
  // Job progress, from 0 to 1, before the first and after the last of these samples. Determines the
  // learning rates of local steps.
  double progress_begin = 0;
  double progress_end = 0;

  // The number of steps that this worker began earlier.
  int64_t number = 0;
  // The maximum number of samples in a pass, at least 1. If training.balance is SPEED, the
  // coordinator sets it for each lease.
  int64_t batch_size = 1;
  // The step number of the push and the job progress that the push reports (PushFrame.progress).
  // REQUIRES: no prefetching, with which `push_step` may be too low.
  Step push_step = 1;
  uint32_t progress = 0;
  // PushFrame.share.
  int64_t share = 0;
};

}  // namespace torchps
