#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/types.h"
#include "torchps/server/store/block.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {

// Server-side decisions on a gradient. Together with the gradient, they determine the block's
// change completely. The push log saves them, so that a replay makes the same change.
struct GradientTerms {
  double rate_factor = 1.0;  // multiplies the learning rate and the share
  double share = 1.0;        // part of the way from an averaged block's values to the pushed ones
  // Part of the job's samples that were assigned before the gradient's samples, in units of 2^-32.
  uint32_t progress = 0;
  double gradient_factor = 1.0;  // multiplies the gradient before the optimizer uses it

  friend bool operator==(const GradientTerms& a, const GradientTerms& b) {
    return a.rate_factor == b.rate_factor && a.share == b.share && a.progress == b.progress &&
           a.gradient_factor == b.gradient_factor;
  }
};

// Describes one change of a block, immediately after the change. Borrows the members.
struct BlockRecord {
  enum class Kind {
    kInitial,   // `elements` are the first values; the version stays 0
    kGradient,  // BlockUpdater::Apply with `payload`, or with `elements` if `payload` is null
    kPassed,    // Block::PassOver, maybe by more than one version
    kLedger,    // only ledger entries changed
  };
  Kind kind = Kind::kLedger;
  GradientTerms terms;  // kGradient only
  const FramePayload* payload = nullptr;
  absl::Span<const float> elements;
  absl::Span<const ElementRun> absent;  // kGradient only
  Version version_before = 0;           // kPassed only
  // The slots with changed ledger entries.
  absl::Span<const SlotId> slots;
};

// Records the changes to one server's blocks, so that a change can be durable before it is
// acknowledged.
//
// Thread-safe. A gradient that SyncPush or BatchPush has only added to a sum has not changed the
// block yet. They record the update when they make it, with the ledger entries of its contributors.
class BlockJournal {
 public:
  virtual ~BlockJournal() = default;

  // Records a change that was just made to `block`. Called in the order of the block's changes,
  // under the block's lock, so implementations must be fast.
  virtual void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) = 0;

  // Runs `continuation` once all earlier records are durable, now or later on another thread. Does
  // not run it if the journal is stopped first. Called without a lock held.
  virtual void WhenDurable(std::function<void()> continuation) = 0;

  // Identifies a continuation that waits in WhenRoom; 0 is invalid.
  using RoomId = uint64_t;
  // Returns 0 if the journal can take more records now; `continuation` does not run then.
  // Otherwise registers `continuation` and returns its id for CancelRoom(). When the journal can
  // take more records, it runs on another thread, maybe before this function returns, unless it is
  // cancelled or the journal is stopped first. Does not block. Called without a lock held.
  virtual RoomId WhenRoom(std::function<void()> continuation) {
    (void)continuation;
    return 0;
  }
  virtual void CancelRoom(RoomId id) { (void)id; }

  // Stops recording. After this returns, continuations do not run any more.
  virtual void Stop() {}
};

}  // namespace torchps
