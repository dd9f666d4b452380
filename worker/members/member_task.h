#pragma once

#include <cstdint>

#include "data/dataset.h"
#include "worker/feed/batch_loader.h"
#include "worker/objective.h"
#include "worker/stages/stages.h"

namespace torchps {

// What one process of a replica trains: its own stage of the model, on the whole data.
//
// A value that shares its module and its datasets with its copies.
struct MemberTask {
  ModelStage stage;
  // Used by the last stage's process. A Pass's module is that stage.
  Objective objective;
  DataSource data;
  // Callbacks::augment; may be null.
  BatchLoader::Augment augment = nullptr;
};

// What a process of a replica is at, in the order of a step: about to pull, at its first forward
// pass, at its first backward pass, its push is on its way. The leader tells of passes alone.
enum class MemberPhase { kPull, kForward, kBackward, kPush };

}  // namespace torchps
