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

// Where the model of a slot lies, as its worker was told. Free functions without state.

namespace torchps {

// OK if the module can lie and compute where it is to. INVALID_ARGUMENT as CheckDevice,
// CheckPrecision and Placement::Check.
absl::Status CheckPlacement(const WorkerOptions& options, const torch::nn::Module& module);

// Where the module is to lie. `slot` may be -1, not known yet. REQUIRES: CheckPlacement() is OK.
Placement MakePlacement(const WorkerOptions& options, SlotId slot);

// Which devices hold the slot's model, where those are several. Other processes are not asked for.
std::vector<ReplicaMember> GetMembers(const WorkerOptions& options, const ModelLayout& layout,
                                      const std::string& host);

}  // namespace torchps
