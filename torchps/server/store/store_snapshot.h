#pragma once

#include <map>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/clock.h"
#include "torchps/common/types.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_table.h"
#include "torchps/server/store/push_policy.h"

namespace torchps {

// Copies a server's blocks for a checkpoint, and restores blocks from a checkpoint or push log.
//
// Capture is thread-safe. Blocks are restored before the first push.
class StoreSnapshot {
 public:
  // The state of a slot in the ledgers.
  struct SlotHistory {
    Step clock = 0;               // the last step that each block has seen, of any incarnation
    Incarnation incarnation = 0;  // the highest that any block has seen
  };

  // Both outlive this object.
  StoreSnapshot(BlockTable* blocks, PushPolicy* policy) : blocks_(blocks), policy_(policy) {}

  // Copies a block with the matching version and ledger. Returns the time for which copying held
  // the block's lock.
  // REQUIRES: `index` is below the number of blocks. ABORTED: the block has no values yet.
  absl::StatusOr<absl::Duration> Capture(size_t index, const Clock& clock, BlockCopy* copy) const;
  // Returns a BlockCopy that is large enough for each block.
  std::unique_ptr<BlockCopy> MakeCopy() const;

  // Restores a block from `image`. May be called again with another image. DATA_LOSS: the block is
  // not on this server, or differs in shape.
  absl::Status Restore(const BlockImage& image);
  // Runs `change` under the block's lock to replay one more change, and returns its error.
  // DATA_LOSS: the block is not on this server.
  absl::Status Replay(BlockId id, absl::FunctionRef<absl::Status(Block*)> change);
  // Tells the policy that the restore is complete.
  // REQUIRES: each block was restored.
  void FinishRestore();
  // The history of each slot that has pushed.
  std::map<SlotId, SlotHistory> Histories() const;

 private:
  BlockTable* const blocks_;
  PushPolicy* const policy_;
};

}  // namespace torchps
