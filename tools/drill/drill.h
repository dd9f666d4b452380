#pragma once

#include <deque>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tools/drill/backup_watch.h"
#include "tools/drill/fault_schedule.h"
#include "tools/drill/recovery_watch.h"
#include "tools/drill/relays.h"
#include "tools/drill/stall_watch.h"
#include "tools/drill/unauthenticated_clients.h"
#include "tools/run_plan/fault_plan.h"

namespace torchps {

// What was done, by kind and part, and what came of it.
struct DrillFigures {
  int server_kills = 0;  // their disks stay
  int worker_kills = 0;
  std::map<int, int> stage_kills;  // of them by the stage of the process, where there are stages
  int server_freezes = 0;
  int worker_freezes = 0;
  int disks_lost = 0;
  int disks_spared = 0;  // their turn had come, and copies were not whole by the end
  std::vector<RecoveryWatch::Recovery> recoveries;
  std::map<std::string, StallWatch::Figures> faults;    // by the flag that makes them
  absl::Duration longest_stall = absl::ZeroDuration();  // of any worker
};

// Does what the schedule says, tells of it, and notes what comes of it. Where the schedule breaks
// the network, workers reach the servers through relays. Not thread-safe. Borrows the stream and
// the clock.
//
// A disk is not lost before the copies are whole again after the loss of the one before: its turn
// waits until then.
class Drill final : public FaultPlan {
 public:
  // `has_log`: the job's durability.level is LOG.
  Drill(const FaultSchedule::Options& options, bool has_log, RecoveryWatch::Connect connect,
        std::ostream& out, const Clock& clock);

  absl::Duration NextAt() const override;
  std::vector<Fault> Take(absl::Duration now) override;
  void OnFault(const Fault& fault, absl::Duration now) override;
  void OnDeath(const PartName& part, absl::Duration now) override;
  void OnReturn(const PartName& part, const std::string& address, absl::Duration now) override;
  absl::StatusOr<std::vector<std::string>> WorkerEnvironment(
      int worker, const std::vector<std::string>& servers) override;
  void OnProgress(int worker, absl::Duration now) override { stalls_.OnProgress(worker, now); }
  void OnDone(int worker, absl::Duration now) override { stalls_.OnDone(worker, now); }

  DrillFigures figures() const;

 private:
  // A fault that has begun and not ended.
  struct Lasting {
    Fault fault;
    int stall = 0;  // its number there
  };

  void Begin(const Fault& fault, absl::Duration now);
  // The end of the oldest of its kind and place.
  void End(const Fault& end, absl::Duration now);

  FaultSchedule schedule_;
  const absl::Duration length_;
  const bool breaks_network_;
  std::ostream& out_;
  RecoveryWatch watch_;
  BackupWatch copies_;
  std::deque<Fault> losses_due_;
  absl::Duration look_at_copies_at_;  // where a loss is due
  StallWatch stalls_;
  Relays relays_;
  UnauthenticatedClients unauthenticated_clients_;
  std::map<int, std::string> addresses_;  // of servers that have listened
  DrillFigures figures_;
  std::map<PartName, absl::Duration> killed_at_;
  std::vector<Lasting> lasting_;
};

// Whether a rule needs the relays.
bool BreaksNetwork(const std::vector<FaultRule>& rules);

}  // namespace torchps
