#include "torchps/job/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/types.h"

namespace torchps {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

absl::StatusOr<Schedule> Schedule::Create(const ScheduleSpec& spec) {
  if (spec.warmup_steps() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.schedule.warmup_steps is ",
                                                   spec.warmup_steps(), "; it must be 0 or more"));
  }
  if (!ScheduleSpec::By_IsValid(spec.by())) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.schedule.by is ", spec.by(), "; expected APPLIED or SAMPLES"));
  }
  if (spec.by() == ScheduleSpec::SAMPLES && spec.total_steps() < 1) {
    return absl::InvalidArgumentError(
        "optimizer.schedule.total_steps is missing: a schedule by SAMPLES needs a completed job");
  }
  switch (spec.shape()) {
    case ScheduleSpec::CONSTANT:
      return Schedule(spec);
    case ScheduleSpec::STEP:
      if (spec.step_size() <= 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "optimizer.schedule.step_size is ", spec.step_size(), "; STEP needs a value above 0"));
      }
      if (!spec.has_gamma()) {
        return absl::InvalidArgumentError(
            "optimizer.schedule.gamma is missing: "
            "a schedule needs a normalised job");
      }
      return Schedule(spec);
    case ScheduleSpec::COSINE:
      if (spec.total_steps() <= spec.warmup_steps()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "optimizer.schedule.total_steps is ", spec.total_steps(),
            "; COSINE needs more than its warmup_steps, which are ", spec.warmup_steps()));
      }
      return Schedule(spec);
    default:
      // Proto enums are open: the job of a later release may contain a shape that is unknown here.
      return absl::InvalidArgumentError(absl::StrCat("optimizer.schedule.shape is ", spec.shape(),
                                                     "; expected CONSTANT, STEP or COSINE"));
  }
}

Schedule::Schedule(const ScheduleSpec& spec)
    : by_samples_(spec.by() == ScheduleSpec::SAMPLES),
      shape_(spec.shape()),
      warmup_steps_(static_cast<double>(spec.warmup_steps())),
      step_size_(static_cast<double>(spec.step_size())),
      gamma_(spec.gamma()),
      total_steps_(static_cast<double>(spec.total_steps())),
      final_fraction_(spec.final_fraction()) {}

double Schedule::Factor(Version applied, uint32_t progress) const {
  const double k = by_samples_ ? total_steps_ * GetPart(progress) : static_cast<double>(applied);
  const double warm_up = k + 1 < warmup_steps_ ? (k + 1) / warmup_steps_ : 1.0;
  switch (shape_) {
    case ScheduleSpec::STEP:
      return warm_up * std::pow(gamma_, std::floor(k / step_size_));
    case ScheduleSpec::COSINE: {
      const double progress =
          std::clamp((k - warmup_steps_) / (total_steps_ - warmup_steps_), 0.0, 1.0);
      return warm_up *
             (final_fraction_ + (1.0 - final_fraction_) * (1.0 + std::cos(kPi * progress)) / 2.0);
    }
    default:
      return warm_up;
  }
}

}  // namespace torchps
