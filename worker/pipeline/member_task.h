#pragma once

#include <cstdint>
#include <string>

#include "client/pipeline/stage_layouts.h"
#include "data/dataset.h"
#include "worker/feed/batch_loader.h"
#include "worker/objective.h"
#include "worker/stages/stages.h"

namespace torchps {

// Describes the training task of one process of a replica: one stage of the model, and all of the
// data.
//
// Copies share the module and the datasets.
struct MemberTask {
  ModelStage stage;
  // Used by the last stage's process; a Pass's module is that stage.
  Objective objective;
  DataSource data;
  // As in Callbacks::augment; may be null.
  BatchLoader::Augment augment = nullptr;
  // True if the stage's tensors use the names of the whole model, which another process may hold
  // undivided. Otherwise the stage number is prefixed, as in torchps::Stages.
  bool has_whole_names = false;

  // Returns the tensor's name on servers, in model files and in parameter groups.
  std::string NameInWhole(int number, const std::string& name) const {
    return has_whole_names ? name : torchps::NameInWhole(number, name);
  }
};

// Phases of a step in a replica process: before the pull, at the first forward pass, at the first
// backward pass, before a push that was announced to the leader, and while the push is in progress.
// The leader reports only the passes.
enum class MemberPhase { kPull, kForward, kBackward, kComputed, kPush };

// Thrown by MemberOptions::on_phase in tests to simulate a killed process. It bypasses all code
// that converts exceptions to statuses, so the process does not say goodbye.
struct MemberKilled {};

}  // namespace torchps
