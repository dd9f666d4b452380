#pragma once

#include <cstdint>

#include "proto/job.pb.h"

namespace torchps {

// How much of a push counts by the samples behind it, in a job whose pushes do not all have as
// many. A value type.
struct SampleScale {
  enum class Of {
    kNothing,   // each push counts whole
    kRate,      // the learning rate is that of whole_step samples
    kGradient,  // what the optimizer takes of a gradient of n samples is n / whole_step of it
  };
  Of of = Of::kNothing;
  // Above 0, but for kNothing.
  int64_t whole_step = 0;
  // It has the samples of all slots, and not those of one. So the parts of all add up to 1.
  bool is_of_all = false;
};

// What a job in ASYNC asks for. With local steps a push is its samples' part of the step of all
// workers that SYNC would take the mean of; as a factor of the gradient, so that a momentum takes
// no more of it. Optimizers that divide by a gradient's size, as Adam does, would divide the factor
// out again: there it is one of the rate, as it is without local steps where batches differ
// (training.balance, training.global_batch). REQUIRES: `job` is normalised and complete.
SampleScale GetSampleScale(const JobSpec& job);

}  // namespace torchps
