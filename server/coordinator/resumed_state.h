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

// What the job of a directory is resumed from, that is, goes on from though all of its processes
// have ended.
struct ResumedState {
  CoordinatorState state;
  // Why newer checkpoints were not taken, a sentence each.
  std::vector<std::string> passed_over;
};

// The state must fit what the servers come back with. Those that keep a push log have everything,
// so the latest state does; all others come back with the newest checkpoint, so the state in it
// does. All shards of it that are in the directory are read: `on_shard` hears the checkpoint's
// number before each of them; its error ends the search and is the result.
//   NOT_FOUND  the directory has nothing to resume from
//   DATA_LOSS  what it has is damaged
absl::StatusOr<ResumedState> FindResumedState(
    const CheckpointDirectory& directory, const CoordinatorStore& store,
    const std::function<absl::Status(uint64_t checkpoint)>& on_shard);

}  // namespace torchps
