#pragma once

#include <string>
#include <vector>

#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "torch/types.h"
#include "worker/stages/placement.h"

namespace torchps {

// List the members that hold a slot's copy of the model, for the worker's join request. Members are
// devices with a full replica each, devices with a stage each, or processes with a stage each. Each
// entry contains the member's location, the trained part, and the memory for values, gradients and
// their network copies. Slots with a single member send an empty list. Free functions without
// state.

// Each device holds the whole model; the first device leads.
std::vector<ReplicaMember> DeviceMembers(const std::vector<torch::Device>& devices,
                                         const ModelLayout& layout, const std::string& host);

// Each device holds one stage. Returns an empty list if the module is not cut.
std::vector<ReplicaMember> StageMembers(const Placement& placement, const ModelLayout& layout,
                                        const std::string& host);

// A process on `host` holds stage `stage` with `layout`.
ReplicaMember ProcessMember(int stage, torch::Device device, const ModelLayout& layout,
                            const std::string& host);

// Returns the members' devices in order, for example "cpu,cpu".
std::string DevicesOfMembers(const std::vector<ReplicaMember>& members);

}  // namespace torchps
