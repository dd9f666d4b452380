#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Learning rate schedule: a factor on the base rate. For APPLIED, the factor depends on the number
// of gradients applied to a block. For SAMPLES, it depends on the job's progress when the
// gradient's samples were assigned. Immutable and therefore thread-safe; copyable.
//
// Definitions for k gradients applied before this one (with SAMPLES k = T * progress, a real
// number), w warm-up steps and T total steps:
//   factor(k) = warm_up(k) * shape(k)
//   warm_up   = min(1, (k + 1) / w), so that the first step moves and step w - 1 has the full rate
//               (Goyal et al. 2017); 1 if w = 0
//   CONSTANT  = 1
//   STEP      = gamma ^ floor(k / step_size), where k includes the warm-up steps
//   COSINE    = f + (1 - f) * (1 + cos(pi * (k - w) / (T - w))) / 2 with f = final_fraction:
//               1 up to the end of the warm-up, f from k = T on (Loshchilov and Hutter 2017)
class Schedule {
 public:
  // Creates a schedule from a normalised `spec` (torchps/job/job_spec.h). Returns INVALID_ARGUMENT,
  // naming the field, for an unknown shape, a negative count, STEP without step_size or gamma,
  // COSINE with total_steps not above warmup_steps, or SAMPLES without total_steps.
  static absl::StatusOr<Schedule> Create(const ScheduleSpec& spec);

  // Returns the factor for the next gradient of a block at version `applied`. `progress` is the
  // part of the job's samples assigned before the gradient's samples, in units of 2^-32. REQUIRES:
  // applied >= 0.
  double Factor(Version applied, uint32_t progress) const;

 private:
  explicit Schedule(const ScheduleSpec& spec);

  bool by_samples_;
  ScheduleSpec::Shape shape_;
  double warmup_steps_;
  double step_size_;
  double gamma_;
  double total_steps_;
  double final_fraction_;
};

}  // namespace torchps
