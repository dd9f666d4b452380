#pragma once

#include <deque>

namespace torchps {

// Estimates the duration of one slot's step from earlier steps:
//
//   seconds = level * (fixed + (1 - fixed) * samples / reference),
//
// where `reference` is the number of samples in an early step. `level` changes if the machine
// becomes slower or faster. `fixed` is the fraction of a reference step that does not grow with the
// samples. It depends on the model and hardly changes. Steps of equal size contain no information
// about `fixed`. So it keeps the last estimate, which is 0 at first. While it is 0, samples seem to
// cost more than they do, so BatchBalancer moves too few samples rather than too many. The steps
// after such a move have other sizes and reveal `fixed`.
//
// The estimator is a Kalman filter (recursive least squares with a prior) of `fixed` and the
// logarithm of a step's seconds. An observation more than three standard deviations from the
// prediction counts as three (Huber 1964), so an outlier changes the estimate little. Page's test
// (1954) separates a change of speed from noise. After such a change, the median of the last five
// observations replaces the estimate of `level`.
//
// Not thread-safe; does not read a clock.
class StepTime {
 public:
  // Adds a step of `samples` that lasted `seconds`, both above 0.
  void Observe(double samples, double seconds);

  // Returns true if there are enough observations to predict from.
  bool known() const { return noise_ > 0; }

  // REQUIRES for all: known(). Steps of x samples last fixed_seconds() + x * sample_seconds().
  double fixed_seconds() const;
  double sample_seconds() const;
  // Returns the relative standard error in the predicted time for a step of `samples`.
  double Error(double samples) const;

 private:
  struct Observation {
    double samples, log_seconds;
  };

  // Returns the predicted seconds relative to a step of `reference_` samples.
  double Shape(double samples) const;
  // Returns the derivative of Shape()'s logarithm by `fixed_`.
  double Slope(double samples) const;
  // Replaces the time of a step with the median of the last few observations.
  void TakeLevel();
  // Sets `samples_` to `samples` and adapts the rest of the state.
  void MoveTo(double samples);
  // Updates the state with an observed step of `samples_`.
  void Update(double log_seconds);

  std::deque<Observation> latest_;
  double reference_ = 1;
  // The filter's state: the logarithm of the seconds for a step of `samples_`, and the fixed part.
  double samples_ = 1;
  double log_seconds_ = 0;
  double fixed_ = 0;
  // Variances and covariance of the state.
  double variance_ = 0;
  double fixed_variance_ = 0;
  double covariance_ = 0;
  // Standard deviation of an observation's logarithm, and the number of observations in this
  // running mean.
  double noise_ = 0;  // 0: not known yet
  double noise_observations_ = 0;
  // Page's sums: recent deviations above and below the prediction.
  double above_ = 0;
  double below_ = 0;
};

}  // namespace torchps
