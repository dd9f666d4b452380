#pragma once

#include <deque>

namespace torchps {

// Estimates how long one slot's step takes from the steps that it has taken:
//
//   seconds = level * (fixed + (1 - fixed) * samples / reference),
//
// where `reference` is an early batch of the slot. A machine that slows down changes `level`.
// `fixed`, the part of a step that does not grow with its samples, belongs to the model and stays.
// Steps of one size say nothing about `fixed`, so it keeps its last estimate, at first 0. That
// predicts too large an effect of samples rather than too small a one, so a share that is moved by
// it does not overshoot, and its moves then tell `fixed`.
//
// The estimator is a Kalman filter (recursive least squares with a prior) of `fixed` and the
// logarithm of a step's seconds. Observations more than three deviations off count as three (Huber
// 1964), so an outlier moves little. Page's test (1954) tells a change of speed from noise: then
// the median of the last five observations replaces the estimate.
//
// Not thread-safe; knows no clock.
class StepTime {
 public:
  // Takes in a step of `samples` that took `seconds`, both above 0.
  void Observe(double samples, double seconds);

  // Whether there are enough observations to predict from.
  bool known() const { return noise_ > 0; }

  // REQUIRES of all: known().
  // A step of x samples takes fixed_seconds() + x * sample_seconds().
  double fixed_seconds() const;
  double sample_seconds() const;
  // Standard error of the time of a step of `samples`, as a part of that time.
  double Error(double samples) const;

 private:
  struct Observation {
    double samples, log_seconds;
  };

  // Seconds() as a multiple of those of a step of `reference_` samples.
  double Shape(double samples) const;
  // Derivative of Shape()'s logarithm by `fixed_`.
  double Slope(double samples) const;
  // Replaces the time of a step by that of the last few observations.
  void TakeLevel();
  // Moves the state to a step of `samples`.
  void MoveTo(double samples);
  // Updates the state with a step of `samples_`.
  void Update(double log_seconds);

  std::deque<Observation> latest_;
  double reference_ = 1;
  // The filter's state: the logarithm of the seconds of a step of `samples_`, and the fixed part.
  double samples_ = 1;
  double log_seconds_ = 0;
  double fixed_ = 0;
  // Their variances and covariance.
  double variance_ = 0;
  double fixed_variance_ = 0;
  double covariance_ = 0;
  // Standard deviation of an observation's logarithm, and how many observations it is the mean of.
  double noise_ = 0;  // 0: not known yet
  double noise_observations_ = 0;
  // Page's sums: how far observations have lately been above and below.
  double above_ = 0;
  double below_ = 0;
};

}  // namespace torchps
