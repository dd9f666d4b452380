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

// Does the work of a slot's heartbeat:
//   - renews the slot's leases on the coordinator and the servers;
//   - takes the slot out of the servers' clocks if other slots would wait in vain, because only
//     this slot cannot reach a server, or because the trainer is stalled;
//   - logs the slot that this slot waits for.
//
// After leaving the clocks, the slot keeps the lease on the coordinator, and returns with the next
// pull or push. Used by one thread.
class SlotUpkeep {
 public:
  struct Options {
    SlotId slot = 0;
    // Servers that answer no renewal for this time count as silent. While a renewal is missed,
    // renewals begin every eighth of this time.
    absl::Duration lease;
    // Maximum time for the trainer to finish a piece of work; after that the trainer counts as
    // stalled.
    absl::Duration progress_timeout = absl::InfiniteDuration();
    // Returns how long the trainer has been working on the current unit of work; zero if it is
    // waiting for other slots.
    std::function<absl::Duration()> stalled_for;
    // CoordinatorClient::RenewSlot, SlotLeases::Renew and SlotLeases::StepAside; each within
    // `timeout`.
    std::function<absl::StatusOr<RenewSlotReply>(absl::Duration timeout, RenewSlotRequest request)>
        renew_slot;
    std::function<Renewals(absl::Duration timeout, absl::Duration stalled_for,
                           absl::Duration longest_pause)>
        renew_leases;
    std::function<void(absl::Duration timeout, const std::vector<int>& silent)> step_aside;
    // Receives lines for the user.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Borrowed.
    const Clock* clock = nullptr;
  };

  explicit SlotUpkeep(Options options) : options_(std::move(options)) {}

  // Renews the leases within `timeout`, which is the time between two renewals. ABORTED: the slot
  // is lost. Other errors are left to the trainer's calls.
  absl::Status Renew(absl::Duration timeout);

  // Delay before the next renewal. Renewals begin at regular times, regardless of their duration.
  absl::Duration pause() const { return pause_; }

 private:
  void TellWhoIsWaitedFor(const Renewals& renewals, absl::Duration stalled_for);

  const Options options_;
  absl::Duration pause_;
  bool aside_ = false;
  absl::optional<absl::Duration> told_;  // time of the last log line about waiting
};

}  // namespace torchps
