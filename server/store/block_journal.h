#pragma once

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "server/store/block.h"
#include "server/store/gradient_terms.h"
#include "wire/frame_payload.h"

namespace torchps {

// One change of a block, told right after it. Borrows everything.
struct BlockRecord {
  enum class Kind {
    kInitial,   // `elements` are its first values; the version stays 0
    kGradient,  // BlockUpdater::Apply with `payload` or, where that is null, with `elements`
    kPassed,    // Block::PassOver, perhaps by more than one version
    kLedger,    // only ledger entries changed
  };
  Kind kind = Kind::kLedger;
  GradientTerms terms;  // kGradient only
  const FramePayload* payload = nullptr;
  absl::Span<const float> elements;
  absl::Span<const ElementRun> absent;  // kGradient only
  Version version_before = 0;           // kPassed only
  // Whose ledger entries have changed.
  absl::Span<const SlotId> slots;
};

// Hears of every change of every block of one server, so that what was acknowledged can be on a
// disk first.
//
// Thread-safe. In SYNC a gradient that waits for its round has not changed the block: it is heard
// of, with its ledger entry, when the round is applied.
class BlockJournal {
 public:
  virtual ~BlockJournal() = default;

  // `block` is as the change has left it. Called in the order of the block's changes, under its
  // lock: to be short.
  virtual void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) = 0;

  // Runs `continuation` once everything that was recorded before this call is durable: at once, or
  // later on another thread. Called under no lock. It does not run if the journal is stopped
  // before.
  virtual void WhenDurable(std::function<void()> continuation) = 0;

  // Names a continuation of WhenRoom that waits; 0 is none.
  using RoomId = uint64_t;
  // For a call that brings more to record: 0 if the journal has room for it; then the continuation
  // does not run. Otherwise the continuation runs when there is room, on another thread and maybe
  // before this returns, unless it is cancelled or the journal stopped before. Called under no
  // lock.
  virtual RoomId WhenRoom(std::function<void()> continuation) {
    (void)continuation;
    return 0;
  }
  virtual void CancelRoom(RoomId id) { (void)id; }

  // No continuation runs after this has returned, and none is running. Nothing is recorded any
  // more.
  virtual void Stop() {}
};

}  // namespace torchps
