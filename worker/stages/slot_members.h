#pragma once

#include <string>
#include <vector>

#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "torch/types.h"
#include "worker/stages/placement.h"

namespace torchps {

// Who holds a slot's copy of the model, as a worker tells the coordinator when it joins: devices
// with a replica of all of it each, devices with a stage each, or processes with a stage each. For
// each member where it is, what it trains, and its memory for values, gradients and their copies
// for the network. A slot with a single member has no list. Free functions without state.

// Each device has all of the model; the first one leads.
std::vector<ReplicaMember> DeviceMembers(const std::vector<torch::Device>& devices,
                                         const ModelLayout& layout, const std::string& host);

// Each device has a stage. None where the module is not cut.
std::vector<ReplicaMember> StageMembers(const Placement& placement, const ModelLayout& layout,
                                        const std::string& host);

// A process on `host` has the stage `stage`, of which `layout` is.
ReplicaMember ProcessMember(int stage, torch::Device device, const ModelLayout& layout,
                            const std::string& host);

// Their devices, in their order: "cpu,cpu".
std::string DevicesOfMembers(const std::vector<ReplicaMember>& members);

}  // namespace torchps
