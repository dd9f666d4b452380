#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "torchps/client/call_loop.h"
#include "torchps/client/remote_server.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/common/types.h"

namespace torchps {

// Identifies the block versions that a vector of values contains after earlier pulls, so that a
// pull can skip unchanged blocks. Keep one with each vector. Clear it when the vector's trained
// part is written by anything but a pull. Empty initially. Thread-compatible.
struct CachedVersions {
  // By block; empty if the versions are unknown.
  std::vector<Version> versions;
  // By server: the incarnation that reported these versions. Versions of different incarnations are
  // not comparable.
  std::vector<uint64_t> incarnations;

  void Clear() {
    versions.clear();
    incarnations.clear();
  }
};

// Results of a pull besides the values.
struct PullResult {
  // The smallest min clock (ASYNC) or number of finished rounds (SYNC) that a server reported.
  Step min_clock = 0;
  // The longest time that a server's staleness bound delayed this pull.
  absl::Duration parked;
  // The time from the start of the pull to the last value, minus `parked`.
  absl::Duration moving;
};

// Selects when servers may answer a pull.
enum class PullKind {
  kBounded,   // as soon as the staleness bound permits
  kAhead,     // like kBounded, but the slot still computes the step that it names
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
    // The step that the slot claims to have finished, or with kAhead still computes.
    Step step = 0;
    PullKind kind = PullKind::kBounded;
    // The pull starts at this time, or earlier if Finish() is called.
    absl::Duration not_before = absl::ZeroDuration();
    // One value for each element of the block map.
    absl::Span<float> values;
    // The versions that `values` contain; updated by Finish(). Null: the versions are unknown.
    CachedVersions* held = nullptr;
    // True if the job's pulls use no lossy encoding. Then values from earlier pulls equal the
    // server's.
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
