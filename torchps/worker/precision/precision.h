#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "torch/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// INVALID_ARGUMENT, one sentence, if `device` cannot train in `precision`.
absl::Status CheckPrecision(TrainingSpec::Precision precision, torch::Device device);

// Allows GPUs to use TF32 (10 bits of mantissa) in convolutions and matrix products if `precision`
// is TF32; otherwise forbids it. torch's default allows it only in convolutions. Affects the whole
// process. Call it once, before the program creates a module.
void SetTf32(TrainingSpec::Precision precision);

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
  // kLeast means unscaled. Gradients that need a scale above kMax would be too small to matter even
  // in float32.
  static constexpr double kLeast = 1;
  static constexpr double kMax = 1 << 24;
  static constexpr int kStepsToDouble = 2000;

  double scale() const { return scale_; }
  // Returns the number of overflows: calls of OnNotFinite() that returned true.
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

// Enables torch's autocast on the calling thread for this object's lifetime. Operations on devices
// of type `device` then compute in the 16-bit type of training.precision, if torch considers them
// safe in 16 bits. Meant for forward passes and losses. Parameters and gradients stay float32. The
// backward pass uses the same types as the forward pass and runs outside autocast.
//
// Has no effect for FLOAT32 and TF32, or for FLOAT16 on the CPU, which cannot train in FLOAT16
// (CheckPrecision()). On the CPU, a model trained in FLOAT16 is evaluated in float32.
//
// Must be destroyed on the thread that made it. The destructor restores the thread's previous state
// and drops torch's cached 16-bit copies of parameters.
//
//   const Autocast autocast(precision, device.type());
//   loss = GetLoss(net->forward(input));
class Autocast {
 public:
  Autocast(TrainingSpec::Precision precision, torch::DeviceType device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const torch::DeviceType device_;
  const bool on_;
  // The previous state of the thread.
  bool was_enabled_ = false;
  torch::ScalarType type_before_ = torch::kFloat32;
};

}  // namespace torchps
