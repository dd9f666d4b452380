#include "proto/next_event.h"

#include <sched.h>

#include <chrono>
#include <thread>

#include "grpc/support/time.h"

namespace torchps {

grpc::CompletionQueue::NextStatus NextEvent(grpc::CompletionQueue* queue, absl::Duration ask_for,
                                            absl::Time deadline, void** tag, bool* ok) {
  static const bool may_ask = std::thread::hardware_concurrency() > 1;
  if (may_ask && ask_for > absl::ZeroDuration()) {
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(ask_for);
    do {
      const auto next = queue->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_REALTIME));
      if (next != grpc::CompletionQueue::TIMEOUT) return next;
      sched_yield();
    } while (std::chrono::steady_clock::now() < until);
  }
  return queue->AsyncNext(tag, ok, absl::ToChronoTime(deadline));
}

}  // namespace torchps
