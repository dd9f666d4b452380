#pragma once

#include <deque>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/tools/drill/fault_proxy.h"
#include "torchps/tools/drill/fault_schedule.h"
#include "torchps/tools/drill/recovery_watch.h"
#include "torchps/tools/drill/unauthenticated_clients.h"
#include "torchps/tools/run_plan/fault_plan.h"

namespace torchps {

// Counts of faults by kind and part, and their effects.
struct DrillFigures {
  int server_kills = 0;  // without loss of the disk
  int worker_kills = 0;
  std::map<int, int> stage_kills;  // worker kills by stage, if workers run in stages
  int server_freezes = 0;
  int worker_freezes = 0;
  int disks_lost = 0;
  int disks_spared = 0;  // skipped, because the copies were not complete in time
  std::vector<RecoveryWatch::Recovery> recoveries;
  std::map<std::string, StallWatch::Figures> faults;    // by the flag that makes them
  absl::Duration longest_stall = absl::ZeroDuration();  // over the workers
};

// Injects the faults of the schedule, prints them and records their effects. If the schedule breaks
// the network, workers reach the servers through relays. Not thread-safe. Borrows the stream and
// the clock.
//
// After the loss of a disk, the next disk loss waits until the copies are complete again.
class Drill final : public FaultPlan {
 public:
  // `has_log` is true if durability.level is LOG.
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
  // A fault in progress.
  struct Lasting {
    Fault fault;
    int stall = 0;  // number in stalls_
  };

  void Begin(const Fault& fault, absl::Duration now);
  // Ends the oldest fault that `end` matches in kind and part.
  void End(const Fault& end, absl::Duration now);

  FaultSchedule schedule_;
  const absl::Duration length_;
  const bool breaks_network_;
  std::ostream& out_;
  RecoveryWatch watch_;
  BackupWatch copies_;
  std::deque<Fault> losses_due_;
  absl::Duration look_at_copies_at_;  // next check, if a disk loss is due
  StallWatch stalls_;
  Relays relays_;
  UnauthenticatedClients unauthenticated_clients_;
  std::map<int, std::string> addresses_;  // by server; for servers that have listened
  DrillFigures figures_;
  std::map<PartName, absl::Duration> killed_at_;
  std::vector<Lasting> lasting_;
};

// Returns true if a rule needs relays.
bool BreaksNetwork(const std::vector<FaultRule>& rules);

}  // namespace torchps
