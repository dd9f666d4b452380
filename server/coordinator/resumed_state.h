#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_directory.h"
#include "proto/checkpoint.pb.h"
#include "server/coordinator/coordinator_store.h"

namespace torchps {

// The state from which a job is resumed after all processes have ended.
struct ResumedState {
  CoordinatorState state;
  // Reasons for skipping newer checkpoints, one sentence each.
  std::vector<std::string> passed_over;
};

// Finds the state that matches the state of the restarted servers. Servers with a push log restore
// everything, so the latest state matches. Other servers restore the newest checkpoint, so the
// state in that checkpoint matches. Reads all shards of the checkpoint that are in the directory.
// Calls `on_shard` with the checkpoint number before each shard; an error from `on_shard` ends the
// search and is returned.
//   NOT_FOUND  the directory does not contain a state to resume from
//   DATA_LOSS  the contents of the directory are damaged
absl::StatusOr<ResumedState> FindResumedState(
    const CheckpointDirectory& directory, const CoordinatorStore& store,
    const std::function<absl::Status(uint64_t checkpoint)>& on_shard);

}  // namespace torchps
