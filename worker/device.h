#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"

// The devices that a worker can compute on: the CPU, and CUDA's GPUs as this process sees them
// ($CUDA_VISIBLE_DEVICES renumbers them). Free functions without state.

namespace torchps {

// The device named "cpu", "cuda" (the first GPU) or "cuda:INDEX". torch::Device's own reading keeps
// eight bits of the index, so that cuda:256 would be cuda:0.
// INVALID_ARGUMENT: no such name; or as CheckDevice.
absl::StatusOr<torch::Device> FindDevice(const std::string& name);

// INVALID_ARGUMENT unless `device` is the CPU or a GPU that is there; says what is missing.
absl::Status CheckDevice(torch::Device device);

// CheckDevice, and makes a GPU the calling thread's current one, so that what a module makes on
// torch::kCUDA without saying where is on the same one.
// INTERNAL: the GPU cannot be taken (other processes fill it, or hold it exclusively).
absl::Status UseDevice(torch::Device device);

}  // namespace torchps
