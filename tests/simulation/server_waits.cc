// Implements the part of ServerModel that checks calls waiting at the server.

#include <algorithm>

#include "tests/simulation/server_model.h"

namespace torchps::simulation {

void ServerModel::OnPullParked(uint64_t call, SlotId slot, Step clock) {
  waits_[call] = {/*is_pull=*/true, slot, clock, world_->now()};
}

void ServerModel::OnPushParked(uint64_t call, SlotId slot, Step step) {
  waits_[call] = {/*is_pull=*/false, slot, step, world_->now()};
}

void ServerModel::OnWaitOver(uint64_t call) { waits_.erase(call); }

void ServerModel::CheckWaits() {
  for (const auto& waiter : waits_) {
    const Wait& wait = waiter.second;
    const bool is_due = wait.is_pull ? Bound() < 0 || wait.clock - min_clock_before_ <= Bound()
                                     // If there is a log, the push may wait for the disk.
                                     : !scenario_->logs() && IsSettled(wait);
    if (is_due) {
      world_->Violation(name_, ": the ", wait.is_pull ? "pull" : "push", " of slot ", wait.slot,
                        " at step ", wait.clock, " waits without a reason; the min clock is ",
                        min_clock_before_);
      return;
    }
    // The push waits for the log, and a failing disk may delay the log for any time.
    const bool waits_for_disk = !wait.is_pull && scenario_->logs() && IsSettled(wait);
    if (waits_for_disk) continue;
    if (!leases_judged_ || world_->now() - wait.since <= scenario_->lease() + absl::Seconds(1)) {
      continue;
    }
    // A dead slot's call waits until its deadline. Any other call may wait only for a live slot
    // that must still push.
    const auto waiting = slots_.find(wait.slot);
    if (waiting == slots_.end() || !waiting->second.live) continue;
    if (!HasReason(wait)) {
      world_->Violation(name_, ": slot ", wait.slot, " has waited for ",
                        absl::FormatDuration(world_->now() - wait.since),
                        ", but no live slot is behind it");
      return;
    }
  }
}

bool ServerModel::IsSettled(const Wait& wait) const {
  if (scenario_->synchronous()) return CompletedRounds() >= wait.clock;
  return std::none_of(blocks_.begin(), blocks_.end(),
                      [&](const BlockModel& block) { return block.Collects(wait.slot); });
}

bool ServerModel::HasReason(const Wait& wait) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const auto& entry) {
    const auto& [slot, state] = entry;
    if (state.lease_until + absl::Seconds(1) < world_->now()) return false;
    if (!scenario_->whole_batches()) return state.clock < wait.clock;
    return std::any_of(blocks_.begin(), blocks_.end(), [&, other = slot](const auto& block) {
      return block.Collects(wait.slot) && !block.Collects(other);
    });
  });
}

}  // namespace torchps::simulation
