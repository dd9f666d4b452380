#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "torchps/client/step_set.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"

namespace torchps {

// Records which pushes of a slot were applied to each block, and which of them the servers lost by
// rolling back to a checkpoint. Counts each (step, block) once, even if a server crashes several
// times.
//
// Thread-safe. Does not know pushes of the slot's earlier incarnations.
class RollbackAccounting {
 public:
  struct Lost {
    uint64_t blocks = 0;  // number of lost (step, block) pairs
    uint64_t pushes = 0;  // number of steps whose first lost block is in `blocks`
    Step first_step = 0;  // the earliest lost step; 0 if none is lost

    Lost& operator+=(const Lost& other);
  };

  // Called for each run of lost steps of a block. Must not call back into this object.
  using Listener = std::function<void(BlockId block, const StepSet::Run& run)>;

  // `listener` may be null.
  explicit RollbackAccounting(size_t blocks, Listener listener = nullptr)
      : listener_(std::move(listener)), applied_(blocks), kept_(blocks) {}

  // Records that `step` was acknowledged as applied to `block`. `by_former_boot`: the reply is from
  // an earlier incarnation of the server than the one whose `last_step` was last passed to
  // RollBack().
  void Applied(BlockId block, Step step, bool by_former_boot);

  // Records that a restarted server kept this slot's steps of `block` only up to `last_step`.
  // Returns the losses.
  Lost RollBack(BlockId block, Step last_step);

  // Adds losses that other processes of the slot report for their parts.
  void AddLost(const Lost& lost);

  // Returns all losses since the last call.
  Lost TakeLost();

 private:
  // Records steps of one block as lost.
  Lost Lose(BlockId block, const std::vector<StepSet::Run>& runs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Listener listener_;

  Mutex mutex_;
  std::vector<StepSet> applied_ ABSL_GUARDED_BY(mutex_);  // by block, without lost steps
  std::vector<Step> kept_ ABSL_GUARDED_BY(mutex_);        // by block, as passed to RollBack()
  StepSet lost_steps_ ABSL_GUARDED_BY(mutex_);
  Lost untold_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
