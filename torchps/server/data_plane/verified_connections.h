#pragma once

#include <cstddef>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"

namespace torchps {

// Tracks the connections used by live processes of the job, to distinguish workers from unknown
// clients before reading their frames. Each worker makes all calls to a server on one connection,
// and periodically sends Hello or renews the lease on it.
//
// The connection belongs to the process that used it last. Forget() removes a closed connection
// later, when the process's incarnation is over or the connection was silent for long.
//
// Thread-safe. Borrows the clock. Invariant: stores at most kMax connections; a new one replaces
// the longest silent.
class VerifiedConnections {
 public:
  // Each process of a slot uses one connection, and for a moment two when it reconnects. Most slots
  // have one process.
  static constexpr size_t kMax = 2 * kMaxSlots;

  explicit VerifiedConnections(const Clock* clock) : clock_(clock) {}

  // Records that this live incarnation of the slot used `connection` (ConnectionName).
  void RecordCall(const std::string& connection, SlotId slot, Incarnation incarnation);

  // True if the connection is verified. Always true for a call from within this process, which has
  // an empty connection name.
  bool Knows(const std::string& connection) const;

  // Forgets connections with a process that is not live, and connections silent for `patience`.
  // `is_live` is called under this object's lock.
  void Forget(absl::FunctionRef<bool(SlotId, Incarnation)> is_live, absl::Duration patience);

 private:
  struct Speaker {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    absl::Duration heard;
  };

  void ForgetLongestUnheard() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, Speaker> speakers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
