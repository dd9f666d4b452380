#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "torchps/common/types.h"

// Finds the devices that a worker can compute on: the CPU, and the CUDA GPUs that this process sees
// ($CUDA_VISIBLE_DEVICES renumbers them). Stateless.

namespace torchps {

// Returns the device named "cpu", "cuda" (a GPU without an index, see DeviceOfSlot) or
// "cuda:INDEX". Does not use torch::Device's parser, which truncates the index to eight bits, so
// that cuda:256 means cuda:0. INVALID_ARGUMENT for an unknown name, or for a device that
// CheckDevice rejects.
absl::StatusOr<torch::Device> FindDevice(const std::string& name);

// The devices of a worker: one for the whole model, one for each replica of the model, or one for
// each stage. The first replica is the lead, which exchanges values with the servers.
using DeviceList = std::vector<torch::Device>;

// Parses a worker's --device flag: a name for FindDevice; "auto" (all visible GPUs, or the CPU if
// there are none); "cuda:all" (all GPUs); or several devices, each "cpu" or "cuda:INDEX", separated
// by commas. Devices may repeat. The result is never empty. INVALID_ARGUMENT for a device that
// FindDevice rejects, for "cuda" without an index in a list, or for more than 64 devices.
absl::StatusOr<DeviceList> FindDevices(const std::string& text);

// Returns, for example, "cuda:0,cuda:1".
std::string DeviceNames(const DeviceList& devices);

// Returns the index of the slot's GPU if `gpus` GPUs (at least one) are visible: slot modulo
// `gpus`, so that consecutive slots on one machine use different GPUs. Returns -1 (any GPU) if the
// slot is -1 (not known yet) and there are several GPUs.
int GpuOfSlot(SlotId slot, int gpus);

// Returns the number to pass to DeviceOfSlot in place of the slot if several processes hold the
// slot's model, one stage each. Processes on one machine get different numbers. If all processes of
// the slot are on one machine, the number is slot * stages + stage. `replica` contains the
// addresses of all processes (WorkerOptions::replica). Returns `slot` if the slot is -1 (not known
// yet) or `stage` is out of range.
SlotId NumberOfMember(SlotId slot, int stage, const std::vector<std::string>& replica);

// Resolves a GPU without an index to the GPU of the slot (GpuOfSlot). Returns other devices
// unchanged. Returns a GPU without an index if GpuOfSlot returns -1. REQUIRES: CheckDevice(device)
// is OK.
torch::Device DeviceOfSlot(torch::Device device, SlotId slot);

// Returns the device names that FindDevice accepts here: "cpu", "cuda:0", "cuda:1".
std::vector<std::string> SeenDevices();

// INVALID_ARGUMENT unless `device` is the CPU or a usable GPU. The message describes the problem.
absl::Status CheckDevice(torch::Device device);

// Calls CheckDevice and makes a GPU the current device of the calling thread. Tensors that a module
// creates on torch::kCUDA without an index are then on the same GPU. Ignores a GPU without an
// index. INTERNAL if the GPU is unavailable (other processes fill its memory or use it
// exclusively).
absl::Status UseDevice(torch::Device device);

}  // namespace torchps
