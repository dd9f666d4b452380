#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/simulation/scenario.h"
#include "tests/simulation/world.h"
#include "torchps/proto/coordinator.pb.h"

namespace torchps::simulation {

// Models a job's training samples from the leases that workers get and return. Compares the model
// with the coordinator's accounting, and checks the incarnations that the coordinator assigns.
class AccountingModel {
 public:
  AccountingModel(World* world, const Scenario* scenario) : world_(world), scenario_(scenario) {}

  // Reports that the process that drew `nonce` was assigned this incarnation.
  void OnNamed(Incarnation incarnation, uint64_t nonce);
  // Reports that a worker got this lease.
  void OnLease(SlotId slot, Incarnation incarnation, const DataLease& lease);
  // Reports a NextWork call, which may have returned a lease. `status` is the coordinator's
  // accounting after the call.
  void OnHandedIn(const NextWorkRequest& request, const JobStatus& status);
  // Reports that the coordinator saves the state of this revision now. Remembers the model's state.
  void OnKept(uint64_t revision) { kept_[revision] = accounting_; }
  // Reports that the coordinator restored this revision. Returns to the state that OnKept()
  // remembered for it.
  void OnRestored(uint64_t revision);
  // Checks the accounting at the end of the job.
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
    std::map<int, std::vector<bool>> used;  // by epoch and position
    std::map<int, int64_t> used_count;
    int64_t handed_out = 0;  // samples, without reissued leases
    double progress = 0;     // at the end of the last lease
  };

  // Checks the lease's progress, and updates the model's progress.
  void CheckProgress(const DataLease& lease);

  World* const world_;
  const Scenario* const scenario_;
  std::map<Incarnation, uint64_t> nonces_;
  Books accounting_;
  std::map<uint64_t, Books> kept_ = {{0, Books()}};  // by revision; 0: nothing saved
};

}  // namespace torchps::simulation
