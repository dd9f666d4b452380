#pragma once

#include "absl/time/time.h"
#include "grpcpp/completion_queue.h"

namespace torchps {

// Receives the events of one completion queue. Before the thread sleeps, the poller spins for up to
// kSpin, but only if the previous wait ended within kSpin. If the peer is on the same machine, the
// next event then usually arrives within kSpin as well, and waking a sleeping thread would add a
// fifth of kSpin. If events are infrequent, as over a network link, spinning would waste CPU time
// (see docs/results.md).
//
// For use by one thread at a time. The queue must outlive this object.
class EventPoller {
 public:
  // Round trip time for a block of 1 MiB over loopback.
  static constexpr absl::Duration kSpin = absl::Microseconds(300);

  explicit EventPoller(grpc::CompletionQueue* queue) : queue_(queue) {}

  // Returns an event if one is available.
  grpc::CompletionQueue::NextStatus Poll(void** tag, bool* ok);

  // Waits for the next event until `deadline`, like AsyncNext().
  grpc::CompletionQueue::NextStatus Await(absl::Time deadline, void** tag, bool* ok);

 private:
  grpc::CompletionQueue* const queue_;
  bool last_came_soon_ = true;
};

}  // namespace torchps
