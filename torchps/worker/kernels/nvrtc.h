#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace torchps {

// Compiles the kernels (kernel_sources.h) for GPUs of compute capability `major`.`minor` and
// returns the binary that the driver loads. NVRTC is CUDA's run-time compiler; CUDA builds of torch
// from pip include it. NVRTC is loaded at run time, so building does not need CUDA. This call does
// not need a GPU.
//
// The options disable fused multiply-add and keep denormals, and IEEE 754 division and square root
// are used. So the kernels produce the same bits as the host. Takes about a second. Thread-safe.
//
// UNAVAILABLE: NVRTC is not found. INTERNAL: NVRTC does not compile the kernels or does not support
// the GPU; the message quotes the first line of the log.
absl::StatusOr<std::string> CompileKernels(int major, int minor);

}  // namespace torchps
