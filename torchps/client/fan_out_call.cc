#include "torchps/client/fan_out_call.h"

#include <algorithm>
#include <utility>

#include "grpcpp/channel.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

// Maximum number of consecutive greetings of one server incarnation in one round. After that,
// ABORTED is final.
constexpr int kMaxGreetings = 3;

}  // namespace

FanOutCall::FanOutCall(const Clock* clock, StopLatch* stop, Rules rules,
                       const std::vector<RemoteServer*>& servers)
    : clock_(clock), stop_(stop), rules_(rules), parts_(servers.size()) {
  for (size_t i = 0; i < servers.size(); ++i) parts_[i].server = servers[i];
}

void FanOutCall::Begin(grpc::CompletionQueue* queue) {
  queue_ = queue;
  give_up_at_ = clock_->Now() + rules_.patience;
  for (Part& part : parts_) part.next_try = rules_.not_before;
}

void FanOutCall::Hurry() {
  for (Part& part : parts_) {
    if (part.next_try == rules_.not_before) part.next_try = absl::ZeroDuration();
  }
}

absl::Duration FanOutCall::Advance() {
  if (finished_) return absl::InfiniteDuration();
  const absl::Duration now = clock_->Now();
  if (cancel_at_ == absl::InfiniteDuration() && stop_->stopped()) {
    cancel_at_ = now + rules_.grace_after_stop;
  }
  if (now >= cancel_at_) Fail(absl::CancelledError(stop_->reason()));
  absl::Duration next = absl::InfiniteDuration();
  if (failure_.ok()) next = std::min(BeginDue(now), cancel_at_);
  finished_ = failure_.ok() ? AllDone() : !InFlight();
  return next;
}

absl::Duration FanOutCall::BeginDue(absl::Duration now) {
  absl::Duration next = absl::InfiniteDuration();
  for (Part& part : parts_) {
    if (part.done || part.call != nullptr) continue;
    if (part.next_try <= now) {
      BeginCall(part);
    } else {
      next = std::min(next, part.next_try);
    }
  }
  return next;
}

void FanOutCall::BeginCall(Part& part) {
  part.call = part.greeting ? part.server->MakeHello() : MakeCall(*part.server);
  if (part.call == nullptr) return;
  part.call->Start(queue_, [this, &part] { OnCallDone(part); });
}

void FanOutCall::OnCallDone(Part& part) {
  const std::unique_ptr<ClientCall> call = std::move(part.call);
  if (absl::Status status = Conclude(part, call->status()); !status.ok()) Fail(status);
}

absl::Status FanOutCall::Conclude(Part& part, const absl::Status& status) {
  part.next_try = absl::ZeroDuration();
  if (status.ok() && !part.server->busy_with().empty()) {
    // The server did not admit the slot yet. Repeat the same call.
    part.next_try = clock_->Now() + part.server->patience().Busy(part.server->busy_with());
    return absl::OkStatus();
  }
  if (status.ok()) {
    part.server->patience().Answered();
    part.done = !part.greeting && Suffices(*part.server);
    part.greeting = false;
    return absl::OkStatus();
  }
  if (part.server->IsAnotherProgram(status, part.greeting)) return Retry(part, status);
  if (absl::IsUnimplemented(status)) return NoTorchpsServer(part.server->endpoint());
  if (absl::IsAborted(status) && rules_.forgotten == Rules::Forgotten::kDone) {
    part.server->patience().Answered();
    part.done = true;
    return absl::OkStatus();
  }
  if (part.server->server_incarnation() != part.greeted_incarnation) {
    part.greeted_incarnation = part.server->server_incarnation();
    part.pending_hellos = 0;
  }
  const bool may_say_hello = rules_.forgotten == Rules::Forgotten::kGreetAgain ||
                             (rules_.forgotten == Rules::Forgotten::kGreetIfKnown &&
                              part.server->server_incarnation() != 0);
  if (absl::IsAborted(status) && may_say_hello && !part.greeting &&
      part.pending_hellos < kMaxGreetings) {
    ++part.pending_hellos;
    part.greeting = true;
    return absl::OkStatus();
  }
  if (!RetryDeadline::MayRetry(status)) return part.server->WithName(status);
  return Retry(part, status);
}

absl::Status FanOutCall::Retry(Part& part, const absl::Status& failure) {
  const bool is_connected = part.server->endpoint().channel->GetState(
                                /*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  if (absl::IsDeadlineExceeded(failure) && rules_.may_park && !part.greeting && is_connected) {
    part.server->patience().Answered();
    return absl::OkStatus();
  }
  const absl::StatusOr<absl::Duration> delay = part.server->Failed(failure);
  if (!delay.ok()) return delay.status();
  part.next_try = clock_->Now() + *delay;
  // After a reconnect, the server may not know this slot, so greetings are counted from 0 again.
  part.pending_hellos = 0;
  return part.next_try < give_up_at_ ? absl::OkStatus() : part.server->WithName(failure);
}

void FanOutCall::Fail(const absl::Status& status) {
  if (finished_ || !failure_.ok()) return;
  failure_ = status;
  for (Part& part : parts_) {
    if (part.call != nullptr) part.call->Cancel();
  }
}

void FanOutCall::SayNothing() {
  for (Part& part : parts_) {
    TPS_CHECK(part.call == nullptr, "a round with a call has something to say");
    part.done = true;
  }
}

void FanOutCall::MoreToSend() {
  for (Part& part : parts_) {
    if (part.call != nullptr) part.call->MoreToSend();
  }
}

bool FanOutCall::InFlight() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.call != nullptr; });
}

bool FanOutCall::AllDone() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.done; });
}

}  // namespace torchps
