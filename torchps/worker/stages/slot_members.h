#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torch/types.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {

// Holds one device's part of a flat layout in vectors on that device. Copies the part from and to
// the host's vectors, which contain all elements.
//
//   the host's values    | trained ... [part] ... | averaged ... [part] ... |
//   values()             | part, trained | part, averaged |
//   gradients()          | part, trained |
//
// Each function that copies waits for earlier work on the device, and returns when the copy is
// complete. All functions except the accessors throw torch's exceptions.
//
// Copies of this object share the vectors. Thread-compatible.
class DevicePart {
 public:
  // Sets gradients to zero; leaves values uninitialized.
  explicit DevicePart(const StagePart& place);

  const torch::Tensor& values() const { return values_; }
  const torch::Tensor& gradients() const { return gradients_; }
  // Returns the offset of a tensor of the part in values(), and in gradients() if it is trained.
  int64_t GetBegin(const Segment& segment) const;

  void TakeValues(const torch::Tensor& host_values) const;
  void GiveValues(const torch::Tensor& host_values) const;
  void GiveAveraged(const torch::Tensor& host_values) const;
  void GiveGradients(const torch::Tensor& host_gradients) const;

 private:
  // Calls `use` for each run of elements of the host's value vector that this device holds, with
  // the run's offset there, its offset in values() and its length. If the module is not cut, that
  // is one run.
  void ForEachRun(
      const std::function<void(int64_t in_host, int64_t in_part, int64_t length)>& use) const;

  ElementRun trained_, averaged_;
  torch::Tensor values_, gradients_;
};

// The functions below list the members that hold a slot's copy of the model, for the worker's join
// request. Members are devices with a full replica each, devices with a stage each, or processes
// with a stage each. Each entry contains the member's location, the trained part, and the bytes of
// memory for values, gradients and their copies for the network. Slots with a single member send an
// empty list. Free functions without state.

// Returns the members if each device holds the whole model and the first device is the lead.
std::vector<ReplicaMember> DeviceMembers(const std::vector<torch::Device>& devices,
                                         const ModelLayout& layout, const std::string& host);

// Returns the members if each device holds one stage. Returns an empty list if the module is not
// cut.
std::vector<ReplicaMember> StageMembers(const Placement& placement, const ModelLayout& layout,
                                        const std::string& host);

// Returns the member for a process on `host` that holds stage `stage`; `layout` is the stage's.
ReplicaMember ProcessMember(int stage, torch::Device device, const ModelLayout& layout,
                            const std::string& host);

// Returns the members' devices in order, for example "cpu,cpu".
std::string DevicesOfMembers(const std::vector<ReplicaMember>& members);

}  // namespace torchps
