#pragma once

#include <cstdint>

#include "proto/job.pb.h"

namespace torchps {

// Scales a push by its number of samples, in a job with pushes of different sizes.
struct SampleScale {
  enum class Of {
    kNothing,   // each push counts fully
    kRate,      // the learning rate is for whole_step samples
    kGradient,  // a gradient of n samples is scaled by n / whole_step
  };
  Of of = Of::kNothing;
  // Above 0, except for kNothing.
  int64_t whole_step = 0;
  // True if whole_step counts the samples of all slots, so that the slots' parts add up to 1. False
  // if it counts the samples of one slot.
  bool is_of_all = false;
};

// Returns the scale for an ASYNC job. With local steps, a push counts as the samples' part of the
// step that SYNC would average over the workers. The factor applies to the gradient, so that
// momentum scales with it. Optimizers that divide by the gradient's size, such as Adam, would
// cancel the factor, so it applies to the learning rate there. It also applies to the rate without
// local steps if batches differ (training.balance, training.global_batch).
// REQUIRES: `job` is normalized and complete.
SampleScale GetSampleScale(const JobSpec& job);

}  // namespace torchps
