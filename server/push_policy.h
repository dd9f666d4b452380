#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "proto/frame_codec.h"
#include "server/block.h"
#include "server/push_gate.h"

namespace torchps {

// A slot that counts, and the step after which it does so: it pushes each step above `clock`.
struct LiveSlot {
  SlotId slot = 0;
  Step clock = 0;
};

// When a pushed gradient meets its block: on arrival (AsyncPush) or together with those of the
// other slots (SyncPush). Thread-safe; per-block state is guarded by the block's lock, which the
// caller holds.
class PushPolicy {
 public:
  virtual ~PushPolicy() = default;

  // Judges one frame and applies it, or keeps it for its round. The decision is in the ledger when
  // this returns. INVALID_ARGUMENT as PushGate::Judge, or a step that no slot can be at.
  // REQUIRES: the payload has been checked: as many elements as the block, all finite, or none where
  // the block is withheld.
  virtual absl::StatusOr<PushDecision> Push(Block* block, const PushHeader& header,
                                            const FramePayload& payload)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // These slots count from now on. A clock that only rises with the slot's own pushes need not be
  // told again. Afterwards the caller runs Reconsider on every block.
  virtual void SetLive(const std::vector<LiveSlot>& live) = 0;

  // Does what the last change of live slots has made due on this block.
  virtual void Reconsider(Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) = 0;

  // Steps that every block here has finished for all slots: the floor of SYNC. -1 where steps are
  // not taken together.
  virtual int64_t completed_rounds() const = 0;
};

}  // namespace torchps
