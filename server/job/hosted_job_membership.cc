// Which slots are live at a server, by which incarnation, and which memory they share.

#include <algorithm>

#include "server/job/hosted_job.h"
#include "shm/shared_offer.h"

namespace torchps {

absl::Status HostedJob::Enter(SlotId slot, Incarnation incarnation, HelloReply* reply) {
  {
    MutexLock membership(&membership_mutex_);
    {
      MutexLock lock(&mutex_);
      const absl::Status entry = clocks_.CheckEntry(slot, incarnation);
      if (!entry.ok()) return entry;
    }
    live_incarnation_[slot].store(incarnation);
    Step last_step = 0;
    Step own_step = 0;
    for (const LedgerEntry& entry : store_->EntriesOf(slot)) {
      last_step = std::max(last_step, entry.last_step);
      if (entry.incarnation == incarnation) own_step = std::max(own_step, entry.last_step);
    }
    MutexLock lock(&mutex_);
    if (synchronous()) own_step = std::max(own_step, pull_gate_.floor());
    clocks_.Enter(slot, incarnation, own_step, clock_->Now());
    reply->set_floor(synchronous() ? pull_gate_.floor() : clocks_.floor());
    reply->set_last_step(last_step);
  }
  MembershipChanged();
  reply->set_initialized(store_->initialized());
  if (restored_.has_value()) {
    Restored* const restored = reply->mutable_restored();
    restored->set_checkpoint(restored_->checkpoint);
    restored->set_from_log(restored_->from_log);
    for (const LedgerEntry& entry : store_->EntriesOf(slot)) {
      // What another process made is not this one's, whatever its number.
      restored->add_block_step(entry.incarnation == incarnation ? entry.last_step : 0);
      restored->add_slot_step(entry.last_step);
    }
  }
  return absl::OkStatus();
}

void HostedJob::Share(const HelloRequest& request, HelloReply* reply) {
  if (spec_.wire().shared_memory() && request.has_shared_memory()) {
    const absl::Status opened = push_segments_.Open(request.slot(), request.incarnation(),
                                                    DecodeOffer(request.shared_memory()));
    // A worker in another container, or another user's, goes through the network.
    if (!opened.ok()) return;
    if (const absl::StatusOr<const SharedSegment*> values = store_->Share(); values.ok()) {
      *reply->mutable_shared_memory() = EncodeOffer((*values)->offer());
      return;
    }
  }
  push_segments_.Close(request.slot(), request.incarnation());
}

absl::Status HostedJob::Renew(SlotId slot, Incarnation incarnation) {
  MutexLock lock(&mutex_);
  return clocks_.Renew(slot, incarnation, clock_->Now());
}

void HostedJob::Leave(SlotId slot, Incarnation incarnation) {
  if (slot < 0 || slot >= kMaxSlots) return;
  push_segments_.Close(slot, incarnation);
  {
    MutexLock membership(&membership_mutex_);
    Incarnation expected = incarnation;
    live_incarnation_[slot].compare_exchange_strong(expected, 0);
    MutexLock lock(&mutex_);
    clocks_.Leave(slot, incarnation);
  }
  MembershipChanged();
}

int HostedJob::live_slots() const {
  return static_cast<int>(
      std::count_if(live_incarnation_.begin(), live_incarnation_.end(),
                    [](const std::atomic<Incarnation>& live) { return live.load() != 0; }));
}

void HostedJob::ExpireLeases() {
  bool any = false;
  {
    MutexLock membership(&membership_mutex_);
    MutexLock lock(&mutex_);
    for (const SlotId slot : clocks_.Expire(clock_->Now())) {
      push_segments_.Close(slot, live_incarnation_[slot].exchange(0));
      any = true;
    }
  }
  if (any) MembershipChanged();
}

void HostedJob::MembershipChanged() {
  {
    MutexLock membership(&membership_mutex_);
    std::vector<LiveSlot> live;
    {
      MutexLock lock(&mutex_);
      for (const auto& [slot, state] : clocks_.slots()) {
        if (state.live) live.push_back({slot, state.clock});
      }
    }
    store_->SetLive(live);
  }
  RaiseFloors();
}

}  // namespace torchps
