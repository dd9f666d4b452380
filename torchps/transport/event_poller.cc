#include "torchps/transport/event_poller.h"

#include <chrono>

#include "absl/time/clock.h"
#include "grpc/support/time.h"
#include "torchps/common/process/process_limits.h"

namespace torchps {

using NextStatus = grpc::CompletionQueue::NextStatus;

NextStatus EventPoller::Poll(void** tag, bool* ok) {
  return queue_->AsyncNext(tag, ok, gpr_inf_past(GPR_CLOCK_REALTIME));
}

NextStatus EventPoller::Await(absl::Time deadline, void** tag, bool* ok) {
  NextStatus next = Poll(tag, ok);
  // An event that was already available does not predict how soon the next one arrives.
  if (next != NextStatus::TIMEOUT) return next;
  const auto has_come = [&] {
    next = Poll(tag, ok);
    return next != NextStatus::TIMEOUT;
  };
  const auto began = std::chrono::steady_clock::now();
  if (!last_came_soon_ || !SpinFor(kSpin, has_come)) {
    next = queue_->AsyncNext(tag, ok, absl::ToChronoTime(deadline));
  }
  const auto waited = absl::FromChrono(std::chrono::steady_clock::now() - began);
  last_came_soon_ = next == NextStatus::GOT_EVENT && waited <= kSpin;
  return next;
}

}  // namespace torchps
