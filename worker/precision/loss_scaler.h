#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// Computes the loss scale for training.precision FLOAT16, which keeps small gradients above the
// smallest 16-bit number (Micikevicius et al. 2018). Halves the scale after a gradient that is not
// finite and doubles it after 2,000 consecutive finite gradients. The scale is a power of two, so
// undoing it is exact.
//
// Thread-compatible. The scale stays constant during a step, even if the step consists of several
// passes. Call OnFinite() or OnNotFinite() only between steps.
class LossScaler {
 public:
  static constexpr double kFirst = 1 << 16;
  // 1 means unscaled. Above the maximum, even float32 would not benefit.
  static constexpr double kLeast = 1;
  static constexpr double kMax = 1 << 24;
  static constexpr int kStepsToDouble = 2000;

  double scale() const { return scale_; }
  // Returns the number of steps that overflowed at their scale.
  int64_t overflows() const { return overflows_; }

  // Called after a step with a finite gradient. Returns true if the scale changed.
  bool OnFinite();
  // Called after a step with a gradient that is not finite. If the scale may be the cause, halves
  // it, counts an overflow and returns true. Returns false if the loss was not scaled; the gradient
  // itself is then at fault.
  bool OnNotFinite();

 private:
  double scale_ = kFirst;
  int64_t overflows_ = 0;
  int finite_in_a_row_ = 0;
};

// Returns the line that a worker prints when the scale changes.
std::string ScaleLine(int slot, const LossScaler& scaler);

}  // namespace torchps
