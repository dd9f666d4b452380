#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/call_loop.h"
#include "client/remote_server.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/stop_latch.h"
#include "common/types.h"

namespace torchps {

// Identifies the block versions that a vector of values contains after earlier pulls, so that a
// pull can skip unchanged blocks. Keep one with each vector. Clear it when the vector's trained
// part is written by anything but a pull. Empty initially. Thread-compatible.
struct CachedVersions {
  // By block; empty if the versions are unknown.
  std::vector<Version> versions;
  // By server: the incarnation that reported these versions. Restarted servers restart the version
  // count.
  std::vector<uint64_t> incarnations;

  void Clear() {
    versions.clear();
    incarnations.clear();
  }
};

// Results of a pull besides the values.
struct PullResult {
  // The smallest min clock (ASYNC) or completed round (SYNC) that a server reported.
  Step min_clock = 0;
  // The longest time that a server's staleness bound delayed this pull.
  absl::Duration parked;
  // The remaining time, from the start of the pull to the last value.
  absl::Duration moving;
};

// Selects when servers may answer a pull.
enum class PullKind {
  kBounded,   // as soon as the staleness bound permits
  kAhead,     // the same, but the claimed step is still being computed
  kReadOnly,  // at once, without staleness bound or slot
};

// Represents a pull in progress. Values arrive in the caller's memory while the caller does other
// work.
//
// Thread-compatible. Borrows the values during this object's lifetime. The destructor cancels an
// unfinished pull; `values` may then be partly new.
class PendingPull {
 public:
  // All borrowed.
  struct Options {
    CallLoop* loop = nullptr;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    const BlockMap* block_map = nullptr;
    // The servers that own at least one block.
    std::vector<RemoteServer*> servers;
    SlotId slot = 0;
    Incarnation incarnation = 0;
    // The step that the slot claims to have finished.
    Step step = 0;
    PullKind kind = PullKind::kBounded;
    // The pull starts at this time, or when a thread waits for it.
    absl::Duration not_before = absl::ZeroDuration();
    // As long as the block map.
    absl::Span<float> values;
    // The versions that `values` contain; updated by Finish(). Null: unknown.
    CachedVersions* held = nullptr;
    // True if values must arrive without lossy encoding, even for a read-only client.
    bool exact = true;
    // Called on the polling thread when a requested block is complete in `values`, even if it was
    // unchanged. Called again if the transfer is repeated. Must not block. May be null.
    std::function<void(BlockId)> on_block;
    // Receives the versions of the pulled blocks in Finish().
    std::vector<Version>* versions = nullptr;
  };

  explicit PendingPull(Options options);
  ~PendingPull();
  PendingPull(const PendingPull&) = delete;
  PendingPull& operator=(const PendingPull&) = delete;

  // Blocks until all values have arrived, and stores their versions. Returns ParameterClient's
  // errors; then the values may be partly new. May be called once.
  absl::StatusOr<PullResult> Finish();

 private:
  class Round;

  CallLoop* const loop_;
  const Clock* const clock_;
  const absl::Duration not_before_;
  std::vector<Version>* const versions_;
  CachedVersions* const held_;
  const std::shared_ptr<Round> round_;
  bool finished_ = false;
};

}  // namespace torchps
