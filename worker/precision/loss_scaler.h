#pragma once

#include <cstdint>
#include <string>

namespace torchps {

// What a loss is multiplied by in training.precision FLOAT16, so that small gradients are not below
// the smallest number that 16 bits hold (Micikevicius et al. 2018), and how that follows from what
// came of the steps: halved after a gradient that is not finite, doubled after 2,000 in a row that
// are. It is a power of two, so that to undo it changes no digit.
//
// Thread-compatible: read by whoever computes a step, told of the step's end when nobody does. A
// step has one scale, however many passes it takes.
class LossScaler {
 public:
  static constexpr double kFirst = 1 << 16;
  // At 1 nothing is scaled; above the other end float32 would gain nothing either.
  static constexpr double kLeast = 1;
  static constexpr double kMax = 1 << 24;
  static constexpr int kStepsToDouble = 2000;

  double scale() const { return scale_; }
  // Steps that were too large for their scale.
  int64_t overflows() const { return overflows_; }

  // The gradient of a step with this scale was finite. Returns whether the scale is another one
  // now.
  bool OnFinite();
  // It was not. Returns whether the scale may be to blame, and is half of what it was: the step
  // counts as an overflow. False where nothing was scaled: then the gradient itself is at fault.
  bool OnNotFinite();

 private:
  double scale_ = kFirst;
  int64_t overflows_ = 0;
  int finite_in_a_row_ = 0;
};

// The line that a worker prints when the scale has changed.
std::string ScaleLine(int slot, const LossScaler& scaler);

}  // namespace torchps
