#include "torchps/worker/slot/worker_options.h"

#include "torch/types.h"
#include "torchps/worker/device.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/stages/slot_members.h"

namespace torchps {
namespace {

// Returns the devices of all replicas of the model, the lead replica's first.
DeviceList GetDevices(const WorkerOptions& options) {
  DeviceList devices = {options.device};
  devices.insert(devices.end(), options.further_devices.begin(), options.further_devices.end());
  return devices;
}

}  // namespace

absl::Status CheckPlacement(const WorkerOptions& options, const torch::nn::Module& module) {
  DeviceList devices = GetDevices(options);
  devices.insert(devices.end(), options.stage_devices.begin(), options.stage_devices.end());
  for (const torch::Device& device : devices) {
    absl::Status status = CheckDevice(device);
    if (status.ok()) status = CheckPrecision(options.job.training().precision(), device);
    if (!status.ok()) return status;
  }
  return MakePlacement(options, options.slot).Check(module);
}

Placement MakePlacement(const WorkerOptions& options, SlotId slot) {
  const SlotId number = NumberOfMember(slot, options.stage, options.replica);
  const Placement placement = options.stage_devices.empty()
                                  ? Placement(DeviceOfSlot(options.device, number))
                                  : Placement(options.stage_devices);
  return options.device_factory->separates_cpu() ? placement.ApartFromHost() : placement;
}

std::vector<ReplicaMember> GetMembers(const WorkerOptions& options, const ModelLayout& layout,
                                      const std::string& host) {
  if (options.stage_devices.empty()) return DeviceMembers(GetDevices(options), layout, host);
  return StageMembers(Placement(options.stage_devices), layout, host);
}

}  // namespace torchps
