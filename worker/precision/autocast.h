#pragma once

#include "proto/job.pb.h"
#include "torch/types.h"

namespace torchps {

// While this lives, torch's operations on devices of one kind compute in the 16 bits that
// training.precision names, where torch deems them safe for it, on the thread that made this: for
// forward passes and losses. Parameters stay float32, and so do their gradients: a backward pass
// computes in what its forward pass did, and runs outside.
//
// FLOAT32 and TF32 change nothing. FLOAT16 changes nothing on the CPU, which does not train in it
// (worker/precision/device_precision.h): there a model that was trained so is looked at in float32.
//
// Belongs to the thread that made it, and ends there. Puts back what the thread had, and drops the
// copies of parameters in 16 bits that torch keeps meanwhile.
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
  // What the thread had.
  bool was_enabled_ = false;
  torch::ScalarType type_before_ = torch::kFloat32;
};

}  // namespace torchps
