#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/types.h"

namespace torchps {

// The input of a step: the samples of a gradient. LeaseCursor sets the samples, their position and
// their job progress; StepLoop sets the rest. Learner, or the training loop of a program, computes
// the gradient with the model's current values.
struct StepWork {
  // Indices in the training data, valid until the next call of StepLoop::Next().
  absl::Span<const int64_t> samples;
  // The samples to compute next, probably, in this order: the rest of the lease. Directly follows
  // `samples` in memory, and is valid as long.
  absl::Span<const int64_t> upcoming;
  int epoch = 0;  // from 1
  // The first sample's position in the epoch order.
  int64_t position = 0;
  // Job progress, from 0 to 1, before the first and after the last of these samples. Determines the
  // learning rates of local steps.
  double progress_begin = 0;
  double progress_end = 0;

  // The number of earlier steps by this worker.
  int64_t number = 0;
  // The maximum number of samples in a pass, at least 1. If batches are balanced, this is the
  // slot's share.
  int64_t batch_size = 1;
  // Without prefetching: the step number of the push, which is the pulled clock + 1, and the job
  // progress that the push reports (PushFrame.progress).
  Step push_step = 1;
  uint32_t progress = 0;
  // PushFrame.share.
  int64_t share = 0;
};

}  // namespace torchps
