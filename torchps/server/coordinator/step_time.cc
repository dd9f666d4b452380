#include "torchps/server/coordinator/step_time.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace torchps {
namespace {

// Number of observations in the median for `level`. The median ignores two outliers, for example
// from a cold page cache.
constexpr size_t kLatest = 5;
// `level` and the noise are averages over about this many observations. The standard error of
// `level` is then a fourteenth of the noise, 1 / sqrt(200). Page's test detects a change of speed
// much sooner (kChange).
constexpr double kMemory = 200;
// Prior of the noise, weighted as kLatest observations. The deviation of five observations may be
// small by chance.
constexpr double kFirstNoise = 0.3;
// Lower bound of the noise, since machines vary this much from step to step.
constexpr double kLeastNoise = 0.02;
// An observation that is further from the prediction, in standard deviations, counts as this far.
constexpr double kFarthest = 3;
// Page's test adds up the deviations beyond kShift. It detects a change of speed when the sum
// exceeds kChange. Both are in standard deviations. One observation adds at most kFarthest -
// kShift, so detection requires at least five observations.
constexpr double kShift = 1;
constexpr double kChange = 8;
// Prior standard deviation of `fixed`, and the upper bound. If `fixed` were larger, noise would
// hide the time per sample.
constexpr double kFixedDeviation = 0.5;
constexpr double kLargestFixed = 0.95;
// The estimate of `fixed` fades to the prior in about this many observations.
constexpr double kFixedMemory = 1000;
// Ratio of a standard deviation to the mean of absolute values. The standard error of a median
// exceeds that of a mean by the same factor.
constexpr double kOfMean = 1.2533;
// Ratio of a standard deviation to the median of absolute values.
constexpr double kOfMedian = 1.4826;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void StepTime::Observe(double samples, double seconds) {
  latest_.push_back({samples, std::log(seconds)});
  if (latest_.size() > kLatest) latest_.pop_front();
  if (known()) {
    MoveTo(samples);
    Update(std::log(seconds));
  } else if (latest_.size() == kLatest) {
    reference_ = samples;
    samples_ = samples;
    fixed_variance_ = kFixedDeviation * kFixedDeviation;
    TakeLevel();
    std::vector<double> off;
    for (const Observation& of : latest_) {
      off.push_back(std::abs(of.log_seconds - log_seconds_ - std::log(Shape(of.samples))));
    }
    noise_ = (kFirstNoise + kOfMedian * Median(std::move(off))) / 2;
    noise_observations_ = 2 * kLatest;
    TakeLevel();
  }
}

void StepTime::TakeLevel() {
  std::vector<double> levels;
  for (const Observation& of : latest_) {
    levels.push_back(of.log_seconds + std::log(Shape(samples_) / Shape(of.samples)));
  }
  log_seconds_ = Median(std::move(levels));
  variance_ = kOfMean * kOfMean * noise_ * noise_ / kLatest;
  covariance_ = 0;
  above_ = 0;
  below_ = 0;
}

void StepTime::MoveTo(double samples) {
  const double slope = Slope(samples) - Slope(samples_);
  log_seconds_ += std::log(Shape(samples) / Shape(samples_));
  variance_ += slope * (2 * covariance_ + slope * fixed_variance_);
  covariance_ += slope * fixed_variance_;
  samples_ = samples;
}

void StepTime::Update(double log_seconds) {
  // The speed drifts, so this line limits the filter's memory to kMemory observations.
  variance_ += noise_ * noise_ / (kMemory * kMemory);
  fixed_ *= 1 - 1 / kFixedMemory;
  fixed_variance_ +=
      std::max(0.0, kFixedDeviation * kFixedDeviation - fixed_variance_) / kFixedMemory;

  const double all = variance_ + noise_ * noise_;
  const double deviation = std::sqrt(all);
  const double off = std::clamp((log_seconds - log_seconds_) / deviation, -kFarthest, kFarthest);
  log_seconds_ += variance_ / deviation * off;
  fixed_ = std::clamp(fixed_ + covariance_ / deviation * off, 0.0, kLargestFixed);
  fixed_variance_ -= covariance_ * covariance_ / all;
  covariance_ *= noise_ * noise_ / all;
  variance_ *= noise_ * noise_ / all;

  noise_observations_ = std::min(noise_observations_ + 1, kMemory);
  noise_ += (kOfMean * std::abs(off) * noise_ - noise_) / noise_observations_;
  noise_ = std::max(noise_, kLeastNoise);
  above_ = std::max(0.0, above_ + off - kShift);
  below_ = std::max(0.0, below_ - off - kShift);
  if (std::max(above_, below_) > kChange) TakeLevel();
}

double StepTime::Shape(double samples) const {
  return fixed_ + (1 - fixed_) * samples / reference_;
}

double StepTime::Slope(double samples) const { return (1 - samples / reference_) / Shape(samples); }

double StepTime::fixed_seconds() const { return std::exp(log_seconds_) / Shape(samples_) * fixed_; }

double StepTime::sample_seconds() const {
  return std::exp(log_seconds_) / Shape(samples_) * (1 - fixed_) / reference_;
}

double StepTime::Error(double samples) const {
  const double slope = Slope(samples) - Slope(samples_);
  return std::sqrt(variance_ + slope * (2 * covariance_ + slope * fixed_variance_));
}

}  // namespace torchps
