#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "torch/types.h"

// The devices that a worker can compute on: the CPU, and CUDA's GPUs as this process sees them
// ($CUDA_VISIBLE_DEVICES renumbers them). Free functions without state.

namespace torchps {

// The device named "cpu", "cuda" (a GPU without an index: DeviceOfSlot says which) or "cuda:INDEX".
// torch::Device's own reading keeps eight bits of the index, so that cuda:256 would be cuda:0.
// INVALID_ARGUMENT: no such name; or as CheckDevice.
absl::StatusOr<torch::Device> FindDevice(const std::string& name);

// Where a worker computes: one device, or one for each of its replicas of the model, the lead
// first.
using DeviceList = std::vector<torch::Device>;

// What --device of a worker says: a name that FindDevice takes; "auto", all GPUs that are seen, or
// the CPU where none is; "cuda:all", all GPUs; or several devices with a comma between, of which
// each is "cpu" or "cuda:INDEX". The same one may be there more than once. Never empty.
// INVALID_ARGUMENT names the device, as FindDevice.
absl::StatusOr<DeviceList> FindDevices(const std::string& text);

// "cuda:0,cuda:1"
std::string DeviceNames(const DeviceList& devices);

// The GPU for a slot where `gpus` are seen, at least one: workers of one machine, whose slots
// follow each other, take one each and then begin again. -1, any of them, for a slot of -1, which
// is not known yet, unless there is only one.
int GpuOfSlot(SlotId slot, int gpus);

// What stands for the slot where several processes hold its model together, each with a stage of
// its own: a number that those of one machine do not share. `replica` is where each of them listens
// (WorkerOptions::replica). Where all are on one machine it is slot * stages + stage. The slot as
// it is where it is not known, or `stage` is none of theirs.
SlotId NumberOfMember(SlotId slot, int stage, const std::vector<std::string>& replica);

// `device`, where it is a GPU without an index the one of GpuOfSlot. As it is while that is not
// known. REQUIRES: CheckDevice(device) is OK.
torch::Device DeviceOfSlot(torch::Device device, SlotId slot);

// The names of the devices that FindDevice finds here: "cpu", "cuda:0", "cuda:1".
std::vector<std::string> SeenDevices();

// INVALID_ARGUMENT unless `device` is the CPU or a GPU that is there; says what is missing.
absl::Status CheckDevice(torch::Device device);

// CheckDevice, and makes a GPU the calling thread's current one, so that what a module makes on
// torch::kCUDA without saying where is on the same one. Of a GPU without an index it makes nothing.
// INTERNAL: the GPU cannot be taken (other processes fill it, or hold it exclusively).
absl::Status UseDevice(torch::Device device);

}  // namespace torchps
