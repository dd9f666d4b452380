#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "common/model_layout.h"

namespace torchps {

// The layouts of a model that is cut into stages, each of which another process may hold: of each
// stage by itself, and of all of them as the one model that servers know. There a stage's trained
// elements lie together, as its averaged ones do:
//
//   | trained of stage 0 | of stage 1 | ... | averaged of stage 0 | of stage 1 | ... |
//
// No block spans two stages. Free functions without state.

// A name that a tensor has in its stage, as torchps::Stages has it in the whole: "1.fc.weight".
std::string NameInWhole(int stage, const std::string& name);

// The whole layout, of stages whose segments have the names of the whole. INVALID_ARGUMENT: no
// stage, or as ModelLayout::Create, which takes each name once.
absl::StatusOr<ModelLayout> JoinLayouts(const std::vector<ModelLayout>& stages);

// The blocks of one stage, as they lie in its own vector; `whole` is of JoinLayouts(stages).
// INVALID_ARGUMENT: it is not. REQUIRES: 0 <= stage < stages.size().
absl::StatusOr<BlockMap> BlocksOfStage(const BlockMap& whole,
                                       const std::vector<ModelLayout>& stages, int stage);

}  // namespace torchps
