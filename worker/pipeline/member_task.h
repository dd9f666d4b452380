#pragma once

#include <cstdint>
#include <string>

#include "client/pipeline/stage_layouts.h"
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
  // The stage's tensors have the names of the whole model, which another process may hold
  // undivided. Else they get the stage's number before theirs, as in a torchps::Stages.
  bool has_whole_names = false;

  // By which servers, model files and parameter groups know a tensor of the stage.
  std::string NameInWhole(int number, const std::string& name) const {
    return has_whole_names ? name : torchps::NameInWhole(number, name);
  }
};

// What a process of a replica is at, in the order of a step: about to pull, at its first forward
// pass, at its first backward pass, about to push what it has told the leader that it has, its push
// is on its way. The leader tells of passes alone.
enum class MemberPhase { kPull, kForward, kBackward, kComputed, kPush };

// What a test throws from MemberOptions::on_phase for a process that is killed: it passes
// everything that turns exceptions into statuses, so that nobody says goodbye.
struct MemberKilled {};

}  // namespace torchps
