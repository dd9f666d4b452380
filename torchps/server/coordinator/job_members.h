#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/types.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/server/coordinator/slot_registry.h"
#include "torchps/server/coordinator/slot_views.h"

namespace torchps {

// Tracks the addresses of a job's servers. Workers report addresses from --servers when they join.
// An address that a server registers itself overrides them while this coordinator runs. After a
// restart of the coordinator, the last known address is used until a worker joins or the server
// registers again.
//
// Not thread-safe. Empty until the first report.
class ServerAddresses {
 public:
  // Records the addresses from a worker's request; unknown addresses are empty. Ignores the request
  // if it lists a different number of servers.
  void CheckAndLearn(const JoinRequest& request, int server_count);

  // Records the address that a server registers. Returns true if this changed anything. Returns
  // FAILED_PRECONDITION if the index is out of range, and INVALID_ARGUMENT if the address is not
  // HOST:PORT.
  absl::StatusOr<bool> Register(const ServerAddress& place, int server_count);

  // Returns the addresses by server index. Unknown addresses are empty.
  std::vector<std::string> addresses() const;
  // Returns all entries in server order. Empty before the first report.
  const std::vector<ServerAddress>& all() const { return server_addresses_; }

  void SaveTo(CoordinatorState* state) const;
  void Restore(const CoordinatorState& state);
  void Clear() { server_addresses_.clear(); }

 private:
  void MakeRoom(int server_count);

  std::vector<ServerAddress> server_addresses_;
};

// Manages the slots of a job: the holder, the lease and the accounting of each slot. The figures of
// a slot are summed over all incarnations. A slot that was removed for nonfinite gradients stays
// quarantined, also under the next incarnation, until it has pushed a finite gradient. All other
// fields are reset with each incarnation.
//
// Slots that have left stay in the accounting, which reports list. Slots that left without training
// are forgotten, except the latest kMaxUntrainedDeparted: each change of the job writes all slots
// to the disk, so processes that only join and leave would slow the job.
//
// Not thread-safe. The caller passes the time, which must not decrease.
class JobMembers {
 public:
  static constexpr size_t kMaxUntrainedDeparted = 64;

  struct Taken {
    SlotHolder holder;
    bool is_new = false;  // the process did not hold this slot before
  };

  explicit JobMembers(SlotRegistry::Options options) : registry_(options), views_(options.lease) {}

  // Assigns a slot to the joining process. Errors and REQUIRES as in SlotRegistry::Take.
  absl::StatusOr<Taken> Take(const JoinRequest& request, absl::Duration now);

  // Returns the live holder of the wanted slot if `request` reports that holder as dead; otherwise
  // nullopt.
  std::optional<SlotHolder> Predecessor(const JoinRequest& request) const;

  // Renews the slot's lease and returns the slot's accounting. Errors as in SlotRegistry::Renew.
  absl::StatusOr<MemberState*> Renew(SlotHolder holder, absl::Duration now);

  // Records the report that came with a renewal. Returns true if the slot is cut off from a server
  // that other slots can reach. REQUIRES: Renew() succeeded.
  bool RecordRenewal(const RenewSlotRequest& request, absl::Duration now);

  // Returns the holders with an expired lease; the caller must pass each one to End(). Must be
  // called often, because a long pause between two calls is taken for a suspension of this process
  // (SlotViews::Pass).
  std::vector<SlotHolder> Expire(absl::Duration now) {
    views_.Pass(now);
    return registry_.Expire(now);
  }

  // Ends the incarnation, which then holds neither a lease nor an evaluation. Records `state` and
  // `reason`, unless the slot had already been notified of the end of the job.
  void End(SlotHolder holder, SlotAccounting::State state, const std::string& reason);

  bool IsLive(SlotId slot) const;
  // Returns true if this is the slot's latest incarnation, live or not. Also returns true if the
  // accounting has no entry for the slot, and the incarnation was assigned.
  bool IsLatest(SlotHolder holder) const;
  // Returns true if every slot so far is quarantined for nonfinite gradients and has not pushed
  // since.
  bool AllQuarantined() const;
  // Number of live slots that have called AwaitStart, and the first such slot or -1.
  int awaiting() const;
  SlotId FirstAwaiting() const;
  bool Awaits(SlotId slot) const;
  // Returns the highest step count of any slot.
  int64_t MostSteps() const;

  // Accounting by slot, including slots that are not live. `live` and `nonce` are unused here.
  std::map<SlotId, MemberState>& accounting() { return accounting_; }

  // Adds a call's figures to the slot's totals.
  static void AddFigures(const StepFigures& figures, MemberState* member);

  void Describe(JobStatus* status) const;

  // Saves the slots and the next incarnation.
  void SaveTo(CoordinatorState* state) const;
  // Restores the state that SaveTo() wrote, with full leases. Returns DATA_LOSS if SaveTo() cannot
  // have written it. REQUIRES: processes have not joined yet.
  absl::Status Restore(const CoordinatorState& state, absl::Duration now);

 private:
  // Removes slots from the accounting as the class comment describes.
  void ForgetUntrained();
  SlotHolder GetHolder(SlotId slot) const { return {slot, accounting_.at(slot).incarnation()}; }

  SlotRegistry registry_;
  SlotViews views_;
  std::map<SlotId, MemberState> accounting_;
};

}  // namespace torchps
