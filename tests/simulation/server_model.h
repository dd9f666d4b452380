#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/block_model.h"
#include "tests/simulation/patience_model.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/world.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/job/hosted_job.h"
#include "torchps/transport/frame_codec.h"

namespace torchps::simulation {

// Models one parameter server: the blocks, the live slots, their clocks, and the waiting calls.
// SimServer reports each request and answer. After each event the model is compared with the
// server.
//
// One model covers all restarts of a server.
class ServerModel {
 public:
  ServerModel(World* world, const Scenario* scenario, int server);

  // Reports the server's death, which ends all waiting calls.
  void OnDeath();
  // Reports that the restarted server created a job, new or restored. Compares the job's blocks
  // with the history.
  void OnJob(HostedJob* job, bool restored, bool from_log);

  void OnHello(SlotId slot, Incarnation incarnation, const HelloReply& reply);
  void OnRenew(SlotId slot, Incarnation incarnation, const absl::StatusOr<RenewReply>& reply);
  void OnLeave(SlotId slot, Incarnation incarnation);
  void OnExpiry();
  void OnFrame(const PushHeader& header, const absl::Status& status);
  // Reports that all frames of a step arrived.
  void OnPushEnd(SlotId slot, Incarnation incarnation, Step step);
  // Reports that the server is about to make the updates that are due. The server's last freeze, if
  // any, ended at `running_since`.
  void OnHousekeeping(absl::Duration running_since);
  void OnAcknowledged(SlotId slot, Incarnation incarnation, Step step, const PushReply& reply);
  void OnPull(const PullRequest& request);
  void OnGrant(SlotId slot, Step clock, Step min_clock);

  // Report that the server parked a call, or that a parked call ended.
  void OnPullParked(uint64_t call, SlotId slot, Step clock);
  void OnPushParked(uint64_t call, SlotId slot, Step step);
  void OnWaitOver(uint64_t call);

  // Compares the server with the model. Called at the end of an event.
  void Check();

  // True if the server has no job or no live slot.
  bool IsOver() const;
  // Checks that blocks do not hold collected pushes. REQUIRES: IsOver().
  void CheckEnd() const;

  // Updates of the server's blocks since the simulation began. WHOLE_BATCH only.
  BlockModel::Updates updates() const;

  // True if the push waits for the block's next update.
  bool IsCollected(const PushHeader& push) const;
  // True if block number `index` of this server contains the push.
  bool Has(size_t index, const BlockModel::Name& name) const { return blocks_[index].Has(name); }
  // REQUIRES: this server owns the block.
  Version GetVersion(BlockId block) const;
  Step Clock(SlotId slot) const;
  bool IsLive(SlotId slot, Incarnation incarnation) const;
  // Returns the last incarnation that said Hello since the server's start; 0 if there was none.
  Incarnation SlotHolder(SlotId slot) const;

 private:
  struct Slot {
    Incarnation incarnation = 0;
    Incarnation least = 0;  // the highest in the restored ledgers; Hello needs at least this
    bool live = false;
    bool pulled = false;
    Step clock = 0;
    absl::Duration lease_until;
  };
  struct Wait {
    bool is_pull = false;
    SlotId slot = 0;
    Step clock = 0;
    absl::Duration since;
  };

  struct Acknowledged {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    PushReply reply;
  };
  struct Granted {
    SlotId slot = 0;
    Step clock = 0;
    Step min_clock = 0;
  };

  void Judge(const Acknowledged& acknowledged);
  void Judge(const Granted& granted);
  void CheckWaits();
  // True if each block here applied the push that the call waits for.
  bool IsSettled(const Wait& wait) const;
  // True if a slot that was heard recently explains the wait: its clock is behind, or its push is
  // missing in a block.
  bool HasReason(const Wait& wait) const;
  void CheckUpdateCounts() const;
  std::set<SlotId> LiveSlots() const;
  BlockModel::State ReadState(size_t index, const ServerStatus& status) const;
  void Observe();
  Step LastStep(SlotId slot) const;
  void Expect();
  void Claim(Slot& slot, Step clock);
  bool Heard(SlotId slot, Incarnation incarnation);
  void RaiseMinClock();
  Step CompletedRounds() const;
  // Returns the staleness bound; negative if unbounded.
  int Bound() const;
  std::map<SlotId, Step> FindMissing(Step step, const std::set<SlotId>& contributors) const;

  World* const world_;
  const Scenario* const scenario_;
  const std::string name_;
  HostedJob* job_ = nullptr;
  bool restored_ = false;
  std::vector<BlockModel> blocks_;
  std::map<SlotId, Slot> slots_;
  PatienceModel patience_;
  BlockModel::Updates past_updates_;  // before the server's last restart
  Step min_clock_ = 0;
  Step min_clock_before_ = 0;  // at the end of the last event
  std::map<uint64_t, Wait> waits_;
  // True if the server expired leases in this event. In other events a server that was frozen may
  // still count dead slots as live.
  bool leases_judged_ = false;
  // Answers in this event. Judged at the end of the event, when all changes are known.
  std::vector<Acknowledged> acknowledged_;
  std::vector<Granted> granted_;
};

}  // namespace torchps::simulation
