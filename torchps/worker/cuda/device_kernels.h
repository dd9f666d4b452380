#pragma once

#include <cstdint>
#include <memory>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "torchps/common/block_map.h"
#include "torchps/worker/cuda/device_copies.h"
#include "torchps/worker/kernels/gradient_kernels.h"

namespace torchps {

// Compiled kernels for one GPU, with access to torch's current stream.
struct DeviceKernels {
  // Compiles the kernels in about a second. UNAVAILABLE: torch or this machine lacks something the
  // kernels need. INTERNAL: the device failed.
  static absl::StatusOr<DeviceKernels> Create(c10::Device device);

  std::unique_ptr<GradientKernels> kernels;
  CurrentStream current_stream;
};

// Allocates at least `bytes` of uninitialized device memory. The elements are doubles, because the
// kernels store doubles and need their alignment.
at::Tensor DoublesFor(int64_t bytes, c10::Device device);

// Returns the length of the longest trained block, in elements. Scratch memory of that length
// suffices for any block, one at a time.
int64_t LongestTrained(const BlockMap& block_map);

}  // namespace torchps
