#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"

namespace torchps {

// Converts between the layout of each stage of a model and the layout of the whole model, which the
// servers use. Stages may be in different processes. In the whole layout, the trained elements of
// one stage are contiguous, and so are the averaged elements:
//
//   | trained of stage 0 | of stage 1 | ... | averaged of stage 0 | of stage 1 | ... |
//
// Blocks do not span two stages. All functions are thread-safe.

// Returns the name in the whole module of a stage's tensor, as in torchps::Stages, for example
// "1.fc.weight".
std::string FullName(int stage, const std::string& name);

// Joins stage layouts into the whole layout. The segment names must be names in the whole module.
// INVALID_ARGUMENT if `stages` is empty, or for the reasons of ModelLayout::Create, for example a
// duplicate name.
absl::StatusOr<ModelLayout> JoinLayouts(const std::vector<ModelLayout>& stages);

// Returns the blocks of one stage, with offsets in the stage's vector. INVALID_ARGUMENT if `whole`
// does not belong to JoinLayouts(stages). REQUIRES: 0 <= stage < stages.size().
absl::StatusOr<BlockMap> BlocksOfStage(const BlockMap& whole,
                                       const std::vector<ModelLayout>& stages, int stage);

}  // namespace torchps
