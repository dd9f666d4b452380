#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/slot_leases.h"
#include "common/clock.h"
#include "common/ids.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// What a slot's heartbeat does. It renews the slot's leases at the coordinator and the servers. It
// takes the slot out of the servers' clocks where others would wait for it in vain: where it alone
// does not reach a server any more, or its trainer stands still. And it says for whom the slot
// waits.
//
// A slot that has stepped aside keeps its lease at the coordinator, and is back by itself with its
// next pull or push. Used by one thread.
class SlotUpkeep {
 public:
  struct Options {
    SlotId slot = 0;
    // After which a server is silent that answers no renewal. While one is missed, renewals begin
    // every eighth of it.
    absl::Duration lease;
    // After which a trainer that has not ended a piece of its own work stands still.
    absl::Duration progress_timeout = absl::InfiniteDuration();
    // For how long the trainer has been at one piece of its own work; zero: it waits for others.
    std::function<absl::Duration()> stalled_for;
    // CoordinatorClient::RenewSlot, SlotLeases::Renew, SlotLeases::StepAside; each takes at most
    // `timeout`.
    std::function<absl::StatusOr<RenewSlotReply>(absl::Duration timeout, RenewSlotRequest request)>
        renew_slot;
    std::function<Renewals(absl::Duration timeout, absl::Duration stalled_for,
                           absl::Duration longest_pause)>
        renew_leases;
    std::function<void(absl::Duration timeout, const std::vector<int>& silent)> step_aside;
    // Lines for the user.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Borrowed.
    const Clock* clock = nullptr;
  };

  explicit SlotUpkeep(Options options) : options_(std::move(options)) {}

  // Takes at most `timeout`, the time between two renewals. ABORTED: the slot is lost. What else a
  // coordinator or a server says is for the trainer to meet.
  absl::Status Renew(absl::Duration timeout);

  // How long to wait before the next one: renewals begin at even times, however long each takes.
  absl::Duration pause() const { return pause_; }

 private:
  void TellWhoIsWaitedFor(const Renewals& renewals, absl::Duration stalled_for);

  const Options options_;
  absl::Duration pause_;
  bool aside_ = false;
  absl::optional<absl::Duration> told_;  // when it last said for whom it waits
};

}  // namespace torchps
