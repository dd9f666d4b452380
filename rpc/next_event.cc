#include "rpc/next_event.h"

#include "grpc/support/time.h"

namespace torchps {

grpc::CompletionQueue::NextStatus NextEvent(grpc::CompletionQueue* queue, absl::Duration ask_for,
                                            absl::Time deadline, void** tag, bool* ok,
                                            Meanwhile meanwhile) {
  auto next = grpc::CompletionQueue::TIMEOUT;
  const auto has_come = [&] {
    next = queue->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_REALTIME));
    return next != grpc::CompletionQueue::TIMEOUT;
  };
  if (AskFor(ask_for, has_come, meanwhile)) return next;
  return queue->AsyncNext(tag, ok, absl::ToChronoTime(deadline));
}

}  // namespace torchps
