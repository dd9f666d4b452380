#include "worker/loop/simulated_slowdown.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace torchps {
namespace {

// The forward part of a step's computing time: backward is about twice as expensive as forward.
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
  const bool pauses = options.pause > absl::ZeroDuration() && options.pause < options.pause_every &&
                      options.pause_every != absl::InfiniteDuration();
  const bool never =
      options.pause == absl::ZeroDuration() && options.pause_every == absl::ZeroDuration();
  if (pauses || never) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--pause is ", absl::ToDoubleSeconds(options.pause), ":",
                   absl::ToDoubleSeconds(options.pause_every),
                   "; expected FOR:EVERY in seconds, with FOR above 0 and below EVERY"));
}

absl::Status SimulatedSlowdown::ParsePause(absl::string_view text, Options* options) {
  if (text.empty()) return absl::OkStatus();
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  double pause = 0;
  double every = 0;
  if (parts.size() != 2 || !absl::SimpleAtod(parts[0], &pause) ||
      !absl::SimpleAtod(parts[1], &every) || std::isnan(pause) || std::isnan(every)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pause is ", text, "; expected FOR:EVERY in seconds, as 2:10"));
  }
  options->pause = absl::Seconds(pause);
  options->pause_every = absl::Seconds(every);
  // Check() accepts 0:0, the default of the flag, but a user must not pass it.
  if (pause > 0) return Check(*options);
  return absl::InvalidArgumentError(absl::StrCat(
      "--pause is ", text, "; expected FOR:EVERY in seconds, with FOR above 0 and below EVERY"));
}

SimulatedSlowdown::SimulatedSlowdown(Options options, int64_t batch, const Clock* clock)
    : options_(std::move(options)), batch_(batch), clock_(clock) {}

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
  const absl::Duration now = clock_->Now();
  const absl::Duration paced = Pace(samples) - data_time;
  absl::Duration hold = std::max(compute_time, paced) * options_.slow - compute_time - held;
  hold = std::max(hold, absl::ZeroDuration());
  if (options_.pause > absl::ZeroDuration()) {
    if (!next_pause_.has_value()) {
      next_pause_ = now - held - data_time - compute_time + options_.pause_every;
    }
    const absl::Duration end = now + hold;
    if (end >= *next_pause_) hold += options_.pause;
    while (*next_pause_ <= end) *next_pause_ += options_.pause_every;
  }
  if (hold > absl::ZeroDuration()) options_.wait(hold);
  return held + hold;
}

}  // namespace torchps
