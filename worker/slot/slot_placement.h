#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "torch/nn/module.h"
#include "worker/slot/worker_options.h"
#include "worker/stages/placement.h"

// Determines the devices of a slot's model from the worker's options. Stateless.

namespace torchps {

// Returns OK if the configured devices can hold the module and compute with it. INVALID_ARGUMENT as
// for CheckDevice, CheckPrecision and Placement::Check.
absl::Status CheckPlacement(const WorkerOptions& options, const torch::nn::Module& module);

// Returns the placement of the module. `slot` may be -1 if it is not known yet. REQUIRES:
// CheckPlacement() is OK.
Placement MakePlacement(const WorkerOptions& options, SlotId slot);

// Returns the devices that hold the slot's model if there are several. Ignores other processes.
std::vector<ReplicaMember> GetMembers(const WorkerOptions& options, const ModelLayout& layout,
                                      const std::string& host);

}  // namespace torchps
