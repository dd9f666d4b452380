#include "torchps/client/slot_upkeep.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace torchps {

Heartbeat::Heartbeat(absl::Duration interval, Renew renew, OnLost on_lost, Pause pause)
    : interval_(interval),
      renew_(std::move(renew)),
      on_lost_(std::move(on_lost)),
      pause_(std::move(pause)) {
  thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stopping_changed_.SignalAll();
  }
  thread_.join();
}

absl::Status Heartbeat::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

void Heartbeat::Run() {
  absl::Duration pause = interval_;
  while (true) {
    {
      MutexLock lock(&mutex_);
      // Spurious wakeups cause an early renewal, which is harmless.
      if (!stopping_) stopping_changed_.WaitFor(&mutex_, pause);
      if (stopping_) return;
    }
    const absl::Status status = renew_(interval_);
    if (!absl::IsAborted(status)) {
      if (pause_ != nullptr) pause = pause_();
      continue;
    }
    {
      MutexLock lock(&mutex_);
      status_ = status;
    }
    on_lost_(status);
    return;
  }
}

namespace {

// SlotUpkeep logs a wait of kLongWait or more, and repeats the line every kLineInterval.
constexpr absl::Duration kLongWait = absl::Seconds(10);
constexpr absl::Duration kLineInterval = absl::Seconds(30);
// Number of calls that share the heartbeat's time: to the servers, to the coordinator, and a Leave.
constexpr double kCalls = 3;
// Number of renewals per lease time while a server does not answer.
constexpr double kHurriedRenewals = 8;

std::string Seconds(absl::Duration time) {
  return absl::StrFormat("%.0f s", absl::ToDoubleSeconds(time));
}

void AddContact(int server, const ServerLease::Contact& contact, absl::Duration now,
                RenewSlotRequest* request) {
  const auto age = [now](absl::Duration time) { return absl::ToDoubleSeconds(now - time); };
  ServerContact& told = *request->add_contact();
  told.set_server(server);
  told.set_answered_seconds(age(contact.answered));
  if (contact.missed.has_value()) told.set_missed_seconds(age(*contact.missed));
  if (!contact.first_reached.has_value()) return;
  told.set_first_reached_seconds(age(*contact.first_reached));
  told.set_last_reached_seconds(age(contact.last_reached));
}

}  // namespace

absl::Status SlotUpkeep::Renew(absl::Duration timeout) {
  const absl::Duration interval = timeout;
  const absl::Duration begun = options_.clock->Now();
  timeout /= kCalls;
  const absl::Duration stalled_for = options_.calls->stalled_for();
  const Renewals renewals = options_.calls->RenewLeases(timeout, stalled_for, options_.lease / 2);
  // Reads the clock again, because this process may have been suspended since `begun`. The request
  // states the ages at the time when it is sent.
  const absl::Duration now = options_.clock->Now();
  RenewSlotRequest request;
  request.set_stalled_seconds(absl::ToDoubleSeconds(stalled_for));
  bool misses = false;
  for (const auto& [server, contact] : renewals.contacts) {
    AddContact(server, contact, now, &request);
    misses = misses || contact.missed.has_value();
    if (now - contact.answered >= options_.lease) request.add_silent_server(server);
  }
  const std::vector<int> silent(request.silent_server().begin(), request.silent_server().end());
  const absl::StatusOr<RenewSlotReply> reply =
      options_.calls->RenewSlot(timeout, std::move(request));
  const absl::Duration period =
      misses ? std::min(interval, options_.lease / kHurriedRenewals) : interval;
  const absl::Duration taken = options_.clock->Now() - begun;
  pause_ = std::max(period - taken, absl::ZeroDuration());
  if (absl::IsAborted(reply.status())) return reply.status();
  TellWhoIsWaitedFor(renewals, stalled_for);

  const bool cut_off = reply.ok() && reply->cut_off() && !silent.empty();
  const bool stands_still = stalled_for >= options_.progress_timeout;
  const bool was_aside = aside_;
  aside_ = cut_off || stands_still;
  if (!aside_) return reply.status();
  if (!was_aside) {
    const std::string reason =
        stands_still
            ? absl::StrCat("the trainer of slot ", options_.slot, " has computed or read data for ",
                           Seconds(stalled_for), " without finishing a pass")
            : absl::StrCat("slot ", options_.slot, " cannot reach server ", silent.front(),
                           " any more, but other slots can");
    options_.log(absl::StrCat(reason,
                              "; it leaves the clocks of all servers, so that other slots do ",
                              "not wait for it, and returns with its next pull or push"));
  }
  options_.calls->StepAside(timeout, silent);
  return reply.status();
}

void SlotUpkeep::TellWhoIsWaitedFor(const Renewals& renewals, absl::Duration stalled_for) {
  const std::optional<BlockingSlot>& by = renewals.blocking_slot;
  const bool waits = stalled_for == absl::ZeroDuration() && by.has_value() &&
                     by->slot != options_.slot && by->time >= kLongWait;
  if (!waits) {
    logged_at_.reset();
    return;
  }
  const absl::Duration now = options_.clock->Now();
  if (logged_at_.has_value() && now - *logged_at_ < kLineInterval) return;
  logged_at_ = now;
  options_.log(absl::StrCat("waiting for slot ", by->slot, ": ", by->server,
                            " has received neither a pull nor a push from it for ",
                            Seconds(by->time)));
}

}  // namespace torchps
