#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cached_versions.h"
#include "client/call_loop.h"
#include "client/remote_server.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/stop_latch.h"

namespace torchps {

// What a pull told beside the values.
struct PullResult {
  // The smallest floor that a server told: min clock (ASYNC), completed rounds (SYNC).
  Step min_clock = 0;
  // The longest that a server's staleness bound held this pull.
  absl::Duration parked;
  // What it took beside that, from its beginning to the last value.
  absl::Duration moving;
};

// By which right a pull reads.
enum class PullKind {
  kBounded,   // as soon as the staleness bound lets it
  kAhead,     // the same, while the step that it claims is still being computed
  kReadOnly,  // whatever is there, without bound or slot
};

// A pull under way: the values land in the caller's memory while it does something else.
//
// Thread-compatible. Borrows the values until it is gone. Its destructor drops a pull that nobody
// wants any more; `values` may then be partly new.
class PendingPull {
 public:
  // All borrowed.
  struct Options {
    CallLoop* loop = nullptr;
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    const BlockMap* block_map = nullptr;
    // Those that own a block.
    std::vector<RemoteServer*> servers;
    SlotId slot = 0;
    Incarnation incarnation = 0;
    // What the pull claims to have finished.
    Step step = 0;
    PullKind kind = PullKind::kBounded;
    // It begins at this time, or when a thread waits for it.
    absl::Duration not_before = absl::ZeroDuration();
    // As many as the block map has.
    absl::Span<float> values;
    // What `values` hold; Finish() brings it up to date. Null: nothing is known of them.
    CachedVersions* held = nullptr;
    // Values come as the servers have them, also to a client that only reads: no lossy encoding.
    bool exact = true;
    // Hears, on the thread that polls, that a block which was wanted is in its place, also where it
    // was there before; again, if its call is repeated. It must not block. Null: nobody does.
    std::function<void(BlockId)> on_block;
    // Where Finish() leaves the versions of the blocks that were pulled.
    std::vector<Version>* versions = nullptr;
  };

  explicit PendingPull(Options options);
  ~PendingPull();
  PendingPull(const PendingPull&) = delete;
  PendingPull& operator=(const PendingPull&) = delete;

  // Blocks until all values are there, and remembers their versions. Errors as ParameterClient's,
  // after which the values may be partly new. To be called once.
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
