#pragma once

#include "absl/time/time.h"
#include "grpcpp/completion_queue.h"

namespace torchps {

// Takes the events of one completion queue. Before it lets its thread sleep it spins for kSpin, but
// only where the last event that it waited for came within kSpin: on one machine the next one then
// mostly does too, and waking a thread takes a fifth as long. Where events come seldom, as over a
// link, spinning would only take processor time (docs/results.md has the link's).
//
// For one thread at a time. The queue outlives it.
class EventPoller {
 public:
  // The round trip of a block of 1 MiB on a loopback.
  static constexpr absl::Duration kSpin = absl::Microseconds(300);

  explicit EventPoller(grpc::CompletionQueue* queue) : queue_(queue) {}

  // Takes an event if there is one now.
  grpc::CompletionQueue::NextStatus Poll(void** tag, bool* ok);

  // Waits for the next event until `deadline`, as AsyncNext() does.
  grpc::CompletionQueue::NextStatus Await(absl::Time deadline, void** tag, bool* ok);

 private:
  grpc::CompletionQueue* const queue_;
  bool last_came_soon_ = true;
};

}  // namespace torchps
