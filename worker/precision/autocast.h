#pragma once

#include "proto/job.pb.h"
#include "torch/types.h"

namespace torchps {

// Enables torch's autocast on the calling thread for this object's lifetime. Operations on one kind
// of device then compute in the 16-bit type of training.precision, if torch considers them safe.
// Meant for forward passes and losses. Parameters and gradients stay float32. The backward pass
// uses the same types as the forward pass and runs outside autocast.
//
// Has no effect for FLOAT32 and TF32, or for FLOAT16 on the CPU, which cannot train in it
// (worker/precision/device_precision.h). On the CPU, a model trained in FLOAT16 is evaluated in
// float32.
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
