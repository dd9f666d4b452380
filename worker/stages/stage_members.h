#pragma once

#include <string>
#include <vector>

#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "worker/stages/placement.h"

namespace torchps {

// What a worker reports of its stages when it joins: for each one where it lies, what it trains,
// and its memory for values and gradients, which on a GPU is there twice, with the host's buffers
// for the network. None where the module is not cut.
std::vector<ReplicaMember> StageMembers(const Placement& placement, const ModelLayout& layout,
                                        const std::string& host);

}  // namespace torchps
