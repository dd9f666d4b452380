#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/slots/slot_holder.h"
#include "server/coordinator/slots/slot_registry.h"
#include "server/coordinator/slots/slot_views.h"

namespace torchps {

// The slots of a job: which process holds each, until when, and what the books say of it. A slot's
// figures are summed up over all its incarnations, and that it was sent away is remembered until it
// pushes; the rest begins anew with each.
//
// Not thread-safe. Time is handed in and must not go back.
class JobMembers {
 public:
  struct Taken {
    SlotHolder holder;
    bool is_new = false;  // the process has not held this slot before
  };

  explicit JobMembers(SlotRegistry::Options options) : registry_(options), views_(options.lease) {}

  // Gives a slot to the process that joins. Errors as SlotRegistry::Take, and its REQUIRES.
  absl::StatusOr<Taken> Take(const JoinRequest& request, absl::Duration now);

  // The process that `request` says has died before it; nullopt: it names none that is live.
  absl::optional<SlotHolder> Predecessor(const JoinRequest& request) const;

  // Renews the lease of the slot; its books. Errors as SlotRegistry::Renew.
  absl::StatusOr<MemberState*> Renew(SlotHolder holder, absl::Duration now);

  // What a slot says of itself with its renewal; whether it is cut off from a server that others
  // reach. REQUIRES: Renew() let it.
  bool Hear(const RenewSlotRequest& request, absl::Duration now);

  // Those whose lease has run out; each is to be ended by End().
  // To be called often: a pause says that this process stood still (SlotViews::Pass).
  std::vector<SlotHolder> Expire(absl::Duration now) {
    views_.Pass(now);
    return registry_.Expire(now);
  }

  // Ends the incarnation: it is not live any more, and has nothing in hand. `state` and `reason` go
  // into the books, unless it knew that the job was done.
  void End(SlotHolder holder, SlotAccounting::State state, const std::string& reason);

  bool IsLive(SlotId slot) const;
  // It is the slot's latest incarnation, live or not.
  bool IsLatest(SlotHolder holder) const;
  // Each slot that ever was has been sent away for gradients that were not finite, the last of them
  // just now, and none has pushed since.
  bool AllQuarantined() const;
  // How many live slots have called AwaitStart, and the first of them; -1: none.
  int awaiting() const;
  SlotId FirstAwaiting() const;
  bool Awaits(SlotId slot) const;
  // The most steps that any slot has made.
  int64_t MostSteps() const;

  // By slot, also those that are not live. `live` and `nonce` mean nothing here.
  std::map<SlotId, MemberState>& accounting() { return accounting_; }

  // Adds a call's figures to those of the slot.
  static void AddFigures(const StepFigures& figures, MemberState* member);

  void Describe(JobStatus* status) const;

  // The slots, and the incarnation that the next process gets.
  void SaveTo(CoordinatorState* state) const;
  // Goes on where SaveTo() was called, with whole leases. DATA_LOSS: such slots cannot have been
  // saved. REQUIRES: no process has joined.
  absl::Status Restore(const CoordinatorState& state, absl::Duration now);

 private:
  SlotHolder GetHolder(SlotId slot) const { return {slot, accounting_.at(slot).incarnation()}; }

  SlotRegistry registry_;
  SlotViews views_;
  std::map<SlotId, MemberState> accounting_;
};

}  // namespace torchps
