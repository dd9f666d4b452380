#pragma once

#include "absl/time/time.h"
#include "common/process/ask.h"
#include "grpcpp/completion_queue.h"

namespace torchps {

// The round trip of a block of 1 MiB on a loopback: for so long it pays to ask.
inline constexpr absl::Duration kRoundTrip = absl::Microseconds(300);

// Waits for the next event of a completion queue until `deadline`, as AsyncNext() does, but asks
// for it for `ask_for` before it lets the thread sleep (common/process/ask.h).
grpc::CompletionQueue::NextStatus NextEvent(grpc::CompletionQueue* queue, absl::Duration ask_for,
                                            absl::Time deadline, void** tag, bool* ok,
                                            Meanwhile meanwhile = Meanwhile::kYield);

}  // namespace torchps
