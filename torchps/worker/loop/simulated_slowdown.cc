#include "torchps/worker/loop/simulated_slowdown.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// The forward pass's share in a step's computing time: backward takes about twice as long as
// forward.
constexpr double kForward = 1.0 / 3;

}  // namespace

absl::Status SimulatedSlowdown::Check(const Options& options) {
  if (!(options.slow >= 1) || std::isinf(options.slow)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--slow is ", options.slow, "; expected a factor of at least 1"));
  }
  if (options.pace < absl::ZeroDuration() || options.pace == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("--pace is ",
                                                   absl::ToDoubleMilliseconds(options.pace),
                                                   "; expected milliseconds, 0 for none"));
  }
  return absl::OkStatus();
}

SimulatedSlowdown::SimulatedSlowdown(Options options, int64_t batch)
    : options_(std::move(options)), batch_(batch) {}

absl::Duration SimulatedSlowdown::Pace(int64_t samples) const {
  return options_.pace * (static_cast<double>(samples) / static_cast<double>(batch_));
}

void SimulatedSlowdown::HoldForward(int64_t samples, absl::Duration compute_time) {
  held_ = std::max(compute_time, Pace(samples) * kForward) * options_.slow - compute_time;
  if (held_ > absl::ZeroDuration()) options_.wait(held_);
}

absl::Duration SimulatedSlowdown::Hold(int64_t samples, absl::Duration data_time,
                                       absl::Duration compute_time) {
  if (!any()) return absl::ZeroDuration();
  const absl::Duration held = std::exchange(held_, absl::ZeroDuration());
  const absl::Duration paced = Pace(samples) - data_time;
  const absl::Duration hold = std::max(
      std::max(compute_time, paced) * options_.slow - compute_time - held, absl::ZeroDuration());
  if (hold > absl::ZeroDuration()) options_.wait(hold);
  return held + hold;
}

}  // namespace torchps
