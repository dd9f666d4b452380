#pragma once

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_directory.h"
#include "proto/checkpoint.pb.h"
#include "server/coordinator/coordinator_store.h"

namespace torchps {

// The state from which the job of a directory is resumed, that is, goes on though all of its
// processes have ended.
//
// It must fit what the servers come back with. Those that keep a push log have everything, so the
// latest state does; all others come back with the newest checkpoint, so the state in it does.
//   NOT_FOUND  the directory has nothing to resume from
//   DATA_LOSS  what it has is damaged
absl::StatusOr<CoordinatorState> FindResumedState(const CheckpointDirectory& directory,
                                                  const CoordinatorStore& store);

}  // namespace torchps
