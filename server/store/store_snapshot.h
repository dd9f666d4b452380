#pragma once

#include <map>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint/block_image.h"
#include "common/clock.h"
#include "common/ids.h"
#include "server/store/block_copy.h"
#include "server/store/block_table.h"
#include "server/store/push_policy.h"

namespace torchps {

// What of a server's blocks outlives its process: copies of them for a checkpoint, and blocks
// brought back from one, or from a push log.
//
// Thread-safe as far as blocks are captured. Blocks are brought back before anything is pushed.
class StoreSnapshot {
 public:
  // What the ledgers know of a slot.
  struct SlotHistory {
    Step clock = 0;               // the last step that every block has seen, of any incarnation
    Incarnation incarnation = 0;  // the highest that any block has seen
  };

  // Both outlive this object.
  StoreSnapshot(BlockTable* blocks, PushPolicy* policy) : blocks_(blocks), policy_(policy) {}

  // Copies a block with its version and ledger, which go together, for a checkpoint. Returns for
  // how long the block was locked. REQUIRES: `index` is below the number of blocks. ABORTED: no
  // values yet.
  absl::StatusOr<absl::Duration> Capture(size_t index, const Clock& clock, BlockCopy* copy) const;
  // A BlockCopy with room for each of the blocks.
  std::unique_ptr<BlockCopy> MakeCopy() const;

  // The block is as it was when `image` was taken; doing so again with another image is harmless.
  // DATA_LOSS: not a block of this server, or of another shape.
  absl::Status Restore(const BlockImage& image);
  // Lets `change` bring back one more change of a block, under its lock; its error is the result.
  // DATA_LOSS: not a block of this server.
  absl::Status Replay(BlockId id, absl::FunctionRef<absl::Status(Block*)> change);
  // All blocks have been restored. REQUIRES: they have.
  void FinishRestore();
  // Of each slot that has pushed.
  std::map<SlotId, SlotHistory> Histories() const;

 private:
  BlockTable* const blocks_;
  PushPolicy* const policy_;
};

}  // namespace torchps
