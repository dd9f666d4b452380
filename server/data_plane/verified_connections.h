#pragma once

#include <cstddef>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"

namespace torchps {

// The connections on which a live process of the job has spoken: what tells its workers from
// strangers before their frames are read. A worker makes all its calls at a server on one
// connection, and greets the server or renews a lease on it every now and then.
//
// A connection is known by whoever spoke on it last. One that has ended is not told of; it goes
// with the next Forget() that finds its speaker's incarnation over or itself unheard for long.
//
// Thread-safe. Borrows the clock.
// Invariant: no more than kMax are known; the one that was not heard for longest makes room.
class VerifiedConnections {
 public:
  // A slot has one, for a moment two while it comes back, and one for each process of a replica.
  static constexpr size_t kMax = 2 * kMaxSlots;

  explicit VerifiedConnections(const Clock* clock) : clock_(clock) {}

  // This incarnation of the slot, which is live, has spoken on `connection` (ConnectionName).
  void Heard(const std::string& connection, SlotId slot, Incarnation incarnation);

  // Always those within this process.
  bool Knows(const std::string& connection) const;

  // Forgets those whose speaker is not live any more, and those that were not heard for `patience`.
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
