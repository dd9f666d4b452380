#include "worker/call_round.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/check.h"

namespace torchps {
namespace {

// Greetings of one server within one round, after which its ABORTED counts as final.
constexpr int kMaxGreetings = 3;

}  // namespace

CallRound::CallRound(grpc::CompletionQueue* queue, const Clock* clock, StopLatch* stop, Rules rules,
                     MakeCall make)
    : queue_(queue), clock_(clock), stop_(stop), rules_(rules), make_(std::move(make)) {}

absl::Status CallRound::Run(const std::vector<RemoteServer*>& servers) {
  give_up_at_ = clock_->Now() + rules_.patience;
  parts_.resize(servers.size());
  for (size_t i = 0; i < servers.size(); ++i) parts_[i].server = servers[i];

  // A later stop becomes an event without a tag (CallQueue).
  if (stop_->stopped()) cancel_at_ = clock_->Now() + rules_.grace_after_stop;
  while (!AllDone()) {
    absl::Duration wake_at = absl::InfiniteDuration();
    if (failure_.ok()) {
      wake_at = std::min(BeginDue(), cancel_at_);
    } else if (!InFlight()) {
      return failure_;
    }
    AwaitEvent(wake_at);
    if (clock_->Now() >= cancel_at_) Fail(absl::CancelledError(stop_->reason()));
  }
  return absl::OkStatus();
}

absl::Duration CallRound::BeginDue() {
  absl::Duration next = absl::InfiniteDuration();
  for (Part& part : parts_) {
    if (part.done || part.call != nullptr) continue;
    if (part.next_try <= clock_->Now()) {
      Begin(part);
    } else {
      next = std::min(next, part.next_try);
    }
  }
  return next;
}

void CallRound::Begin(Part& part) {
  part.call = part.greeting ? part.server->MakeHello() : make_(*part.server);
  part.call->Start(queue_, &part);
}

void CallRound::AwaitEvent(absl::Duration wake_at) {
  void* tag = nullptr;
  bool ok = false;
  const absl::Time deadline = absl::Now() + (wake_at - clock_->Now());
  const auto next = queue_->AsyncNext(&tag, &ok, absl::ToChronoTime(deadline));
  TPS_CHECK(next != grpc::CompletionQueue::SHUTDOWN, "the queue outlives the round");
  if (next == grpc::CompletionQueue::TIMEOUT) return;
  if (tag == nullptr) {
    if (stop_->stopped() && cancel_at_ == absl::InfiniteDuration()) {
      cancel_at_ = clock_->Now() + rules_.grace_after_stop;
    }
    return;
  }
  Part& part = *static_cast<Part*>(tag);
  if (!part.call->Proceed(ok)) return;
  if (absl::Status status = Conclude(part); !status.ok()) Fail(status);
}

absl::Status CallRound::Conclude(Part& part) {
  const absl::Status status = part.call->status();
  part.call.reset();
  part.next_try = absl::ZeroDuration();
  if (status.ok()) {
    part.server->patience().Answered();
    if (part.greeting) {
      part.greeting = false;
      return part.server->TakeHello();
    }
    part.done = true;
    return absl::OkStatus();
  }
  if (absl::IsUnimplemented(status)) return NoTorchpsServer(part.server->endpoint());
  if (absl::IsAborted(status) && rules_.forgotten == Rules::Forgotten::kDone) {
    part.done = true;
    return absl::OkStatus();
  }
  if (absl::IsAborted(status) && rules_.forgotten == Rules::Forgotten::kGreetAgain &&
      !part.greeting && part.greetings < kMaxGreetings) {
    ++part.greetings;
    part.greeting = true;
    return absl::OkStatus();
  }
  if (!ServerPatience::MayRetry(status)) return part.server->WithName(status);
  return Retry(part, status);
}

absl::Status CallRound::Retry(Part& part, const absl::Status& failure) {
  const bool is_connected = part.server->endpoint().channel->GetState(
                                /*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  if (absl::IsDeadlineExceeded(failure) && rules_.may_park && !part.greeting && is_connected) {
    part.server->patience().Answered();
    return absl::OkStatus();
  }
  const absl::StatusOr<absl::Duration> delay = part.server->patience().Failed(failure);
  if (!delay.ok()) return delay.status();
  part.next_try = clock_->Now() + *delay;
  return part.next_try < give_up_at_ ? absl::OkStatus() : part.server->WithName(failure);
}

void CallRound::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  for (Part& part : parts_) {
    if (part.call != nullptr) part.call->Cancel();
  }
}

bool CallRound::InFlight() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.call != nullptr; });
}

bool CallRound::AllDone() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.done; });
}

}  // namespace torchps
