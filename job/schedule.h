#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "proto/job.pb.h"

namespace torchps {

// The learning rate over time, as a factor on the base rate. By APPLIED it is
// driven by the gradients applied to a block, by SAMPLES by how far the job was
// when the gradient's samples were handed out. Immutable, so thread-safe;
// copyable.
//
// With k gradients applied before this one (by SAMPLES k = T * progress, a real
// number), w warm-up steps, T total steps:
//   factor(k) = warm_up(k) * shape(k)
//   warm_up   = min(1, (k + 1) / w), so that the first step moves and step w -
//   1 has the full
//               rate (Goyal et al. 2017); 1 where w = 0
//   CONSTANT  = 1
//   STEP      = gamma ^ floor(k / step_size): every step counts, those of the
//   warm-up too COSINE    = f + (1 - f) * (1 + cos(pi * (k - w) / (T - w))) / 2
//   with f = final_fraction: 1 up
//               to the end of the warm-up, f from k = T on (Loshchilov and
//               Hutter 2017)
class Schedule {
 public:
  // `spec` normalised (job/job_spec.h). INVALID_ARGUMENT names the field: an
  // unknown shape, a negative count, STEP without step_size or gamma, COSINE
  // whose total_steps are not more than its warm-up, SAMPLES without
  // total_steps.
  static absl::StatusOr<Schedule> Create(const ScheduleSpec& spec);

  // The factor for the next gradient of a block of version `applied`, whose
  // samples come behind this part of the job's, in 2^-32. REQUIRES: applied >=
  // 0.
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
