#pragma once

#include <cstdint>
#include <memory>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "common/block_map.h"
#include "worker/cuda/current_stream.h"
#include "worker/kernels/gradient_kernels.h"

namespace torchps {

// The kernels of worker/kernels on a GPU, for what torch has there.
struct DeviceKernels {
  // Compiles the kernels, which takes about a second. UNAVAILABLE: this torch, or what is installed
  // here, lacks what it needs. INTERNAL: the device has failed.
  static absl::StatusOr<DeviceKernels> Create(c10::Device device);

  std::unique_ptr<GradientKernels> kernels;
  CurrentStream current_stream;
};

// Memory on the device for so many bytes, with anything in it: as doubles, since that is what
// kernels keep there, and it begins where a double may.
at::Tensor DoublesFor(int64_t bytes, c10::Device device);

// Elements of the longest block that is trained: scratch memory for it does for all, one at a time.
int64_t LongestTrained(const BlockMap& block_map);

}  // namespace torchps
