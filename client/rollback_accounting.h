#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/step_set.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace torchps {

// Which of its pushes a slot knows to be applied, block by block, and what of that its servers have
// lost by going back to a checkpoint: each (step, block) once, however often a server dies.
//
// Thread-safe. What a slot's earlier incarnation pushed is not known here.
class RollbackAccounting {
 public:
  struct Lost {
    uint64_t blocks = 0;  // pairs of a step and a block
    uint64_t pushes = 0;  // steps of which a block is lost and none was before
    Step first_step = 0;  // the earliest of them; 0 where nothing is lost

    Lost& operator+=(const Lost& other);
  };

  // Hears of each run of steps that is lost of a block. Must not call back.
  using Listener = std::function<void(BlockId block, const StepSet::Run& run)>;

  // `listener` may be null.
  explicit RollbackAccounting(size_t blocks, Listener listener = nullptr)
      : listener_(std::move(listener)), applied_(blocks), kept_(blocks) {}

  // `step` was acknowledged as applied to `block`. `by_former_boot`: the answer was given by a life
  // of its server before the one that RollBack() was last told of.
  void Applied(BlockId block, Step step, bool by_former_boot);

  // A server has come back, and has of `block` this slot's steps up to `last_step`. Returns what is
  // lost by it.
  Lost RollBack(BlockId block, Step last_step);

  // What other processes that hold the slot have lost of their parts.
  void AddLost(const Lost& lost);

  // All that was lost since the last call.
  Lost TakeLost();

 private:
  // Enters steps of one block as lost.
  Lost Lose(BlockId block, const std::vector<StepSet::Run>& runs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Listener listener_;

  Mutex mutex_;
  std::vector<StepSet> applied_ ABSL_GUARDED_BY(mutex_);  // by block, without what is lost
  std::vector<Step> kept_ ABSL_GUARDED_BY(mutex_);        // by block, of the last RollBack
  StepSet lost_steps_ ABSL_GUARDED_BY(mutex_);
  Lost untold_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
