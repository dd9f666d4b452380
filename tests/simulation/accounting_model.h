#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/coordinator.pb.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/world.h"

namespace torchps::simulation {

// The training samples of a job by what workers were told and what they handed in: which of them
// have been used. Compares the coordinator's books with that, and what it calls the workers.
class AccountingModel {
 public:
  AccountingModel(World* world, const Scenario* scenario) : world_(world), scenario_(scenario) {}

  // A process, which draws its nonce, was told that it is this incarnation.
  void OnNamed(Incarnation incarnation, uint64_t nonce);
  // A worker was told to train on this.
  void OnLease(SlotId slot, Incarnation incarnation, const DataLease& lease);
  // A worker has handed in its lease, if any; this is what the books say now.
  void OnHandedIn(const NextWorkRequest& request, const JobStatus& status);
  // The coordinator's state of this revision is kept now, with what was decided by then.
  void OnKept(uint64_t revision) { kept_[revision] = accounting_; }
  // The coordinator has come back with the state of this revision.
  void OnRestored(uint64_t revision);
  // The job says that it is done.
  void CheckEnd(const JobStatus& status) const;

 private:
  struct Lease {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    DataLease lease;
    bool counted = false;
  };

  struct Books {
    std::map<uint64_t, Lease> leases;
    std::map<int, std::vector<bool>> used;  // by epoch, by position
    std::map<int, int64_t> used_count;
    int64_t handed_out = 0;  // samples, each once
    double progress = 0;     // as the last lease told it
  };

  // How far the lease says that the job is.
  void CheckProgress(const DataLease& lease);

  World* const world_;
  const Scenario* const scenario_;
  std::map<Incarnation, uint64_t> nonces_;
  Books accounting_;
  std::map<uint64_t, Books> kept_ = {{0, Books()}};  // by revision; 0: nothing yet
};

}  // namespace torchps::simulation
