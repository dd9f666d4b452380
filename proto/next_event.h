#pragma once

#include "absl/time/time.h"
#include "grpcpp/completion_queue.h"

namespace torchps {

// The round trip of a block of 1 MiB on a loopback: for so long it pays to ask.
inline constexpr absl::Duration kRoundTrip = absl::Microseconds(300);

// Waits for the next event of a completion queue until `deadline`, as AsyncNext() does, but asks
// for it for `ask_for` before it lets the thread sleep: the answer to what was just sent is some
// 100 us away, and waking a sleeping thread takes as long again, and about as much processor time
// as the asking (docs/threads.md). Between two questions whoever else wants the core has it. On a
// machine with one core it sleeps at once.
grpc::CompletionQueue::NextStatus NextEvent(grpc::CompletionQueue* queue, absl::Duration ask_for,
                                            absl::Time deadline, void** tag, bool* ok);

}  // namespace torchps
