#pragma once

#include "absl/time/time.h"
#include "grpcpp/completion_queue.h"

namespace torchps {

// Waits for the next event of a completion queue until `deadline`, as AsyncNext() does, but asks
// for it for a while before it lets the thread sleep: the answer to what was just sent is some 100
// us away, and waking a sleeping thread takes as long again, and about as much processor time as
// the asking (docs/threads.md). Between two questions whoever else wants the core has it. On a
// machine with one core it sleeps at once.
grpc::CompletionQueue::NextStatus NextEvent(grpc::CompletionQueue* queue, absl::Time deadline,
                                            void** tag, bool* ok);

}  // namespace torchps
