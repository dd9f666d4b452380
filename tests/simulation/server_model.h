#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "proto/parameter_service.pb.h"
#include "server/job/hosted_job.h"
#include "tests/simulation/block_model.h"
#include "tests/simulation/patience_model.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/world.h"
#include "wire/frame_codec.h"

namespace torchps::simulation {

// What one parameter server must be by all that has happened to it: its blocks, who is alive, how
// far each slot is, who has to wait. The server tells it what it is asked and what it answers;
// after each event the two are compared.
//
// Lives through the server's deaths.
class ServerModel {
 public:
  ServerModel(World* world, const Scenario* scenario, int server);

  // A life of the server ends; who waited has nobody to wait for.
  void OnDeath();
  // Its next life has got a job, restored from a file or new: compares it with the history.
  void OnJob(HostedJob* job, bool restored, bool from_log);

  void OnHello(SlotId slot, Incarnation incarnation, const HelloReply& reply);
  void OnRenew(SlotId slot, Incarnation incarnation, const absl::StatusOr<RenewReply>& reply);
  void OnLeave(SlotId slot, Incarnation incarnation);
  void OnExpiry();
  void OnFrame(const PushHeader& header, const absl::Status& status);
  // All frames of a step have come; its end is to be judged.
  void OnPushEnd(SlotId slot, Incarnation incarnation, Step step);
  // The server is about to make the updates that time has made due. Its last freeze, if any, ended
  // at `running_since`.
  void OnHousekeeping(absl::Duration running_since);
  void OnAcknowledged(SlotId slot, Incarnation incarnation, Step step, const PushReply& reply);
  void OnPull(const PullRequest& request);
  void OnGrant(SlotId slot, Step clock, Step min_clock);

  // A call waits, or does not any more.
  void OnPullParked(uint64_t call, SlotId slot, Step clock);
  void OnPushParked(uint64_t call, SlotId slot, Step step);
  void OnWaitOver(uint64_t call);

  // Compares everything, when an event is over.
  void Check();

  // Whether the server has no live slot, or no job.
  bool IsOver() const;
  // Nothing may be collected any more. REQUIRES: IsOver().
  void CheckEnd() const;

  // Updates of its blocks since the simulation began. WHOLE_BATCH only.
  BlockModel::Updates updates() const;

  // Whether the push waits for its block's next update.
  bool IsCollected(const PushHeader& push) const;
  // Whether this life has the push in that block of its own.
  bool Has(size_t index, const BlockModel::Name& name) const { return blocks_[index].Has(name); }
  // REQUIRES: the block is on this server.
  Version GetVersion(BlockId block) const;
  Step Clock(SlotId slot) const;
  bool IsLive(SlotId slot, Incarnation incarnation) const;
  // The last that has greeted this life; 0: nobody has.
  Incarnation SlotHolder(SlotId slot) const;

 private:
  struct Slot {
    Incarnation incarnation = 0;
    Incarnation least = 0;  // by what the present life came back with
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
  // Whether every block here has applied the push that the call waits for.
  bool IsSettled(const Wait& wait) const;
  // Whether the call waits for a slot that was heard recently.
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
  // The staleness bound; below 0: none.
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
  Step min_clock_before_ = 0;  // when the last event was over
  std::map<uint64_t, Wait> waits_;
  bool leases_judged_ = false;  // in this event: a server that was frozen has seen the time
  // What this event has answered; judged when all that it changed is known.
  std::vector<Acknowledged> acknowledged_;
  std::vector<Granted> granted_;
};

}  // namespace torchps::simulation
