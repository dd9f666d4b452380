#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "tests/fault/nemesis/nemesis_cluster.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Tests that pushes are applied exactly once while processes and connections fail. Servers and
// workers run as processes. Every half to two seconds a random fault occurs: SIGSTOP and SIGCONT,
// kill -9 of a server or worker, a slow restart of a server, or a network partition. Workers also
// restart during a partition or while a server is frozen, and connections are reset. In some trials
// a device computes the gradients, and the device's link fails, which ends the worker.
//
// For each slot, step and block, the push must be applied at most once. Each acknowledged push must
// be applied, unless a server restored from a checkpoint reported it lost. Slots that are not hit
// by a fault may stall for at most a lease and two seconds, not counting the time that a server is
// away.
//
// TORCHPS_NEMESIS_PUSHES ends a trial after this number of steps of all slots instead of the usual
// time, and lets freezes last up to 30 s. TORCHPS_NEMESIS_SEED selects another schedule of faults.
// Set TORCHPS_NEMESIS_PUSHES only on an idle machine without a sanitizer: it also enables the
// strict limit for stalls. Otherwise the limit is loose, and only a slot that does not continue at
// all exceeds it.
//
// Errors are failures of the test that owns this object. Not thread-safe.
class NemesisTrial {
 public:
  struct Options {
    const char* name;
    DurabilitySpec::Level level;
    bool kills_servers;
    NemesisCluster::Workers workers = NemesisCluster::Workers::kPushers;
  };

  // Starts the processes. REQUIRES: PrepareGrpcProcess().
  explicit NemesisTrial(Options options);
  ~NemesisTrial();
  NemesisTrial(const NemesisTrial&) = delete;
  NemesisTrial& operator=(const NemesisTrial&) = delete;

  void Run();

 private:
  // Returns the next kind of fault. Each kind occurs once before a kind repeats, so a short trial
  // contains all of them.
  NemesisCluster::Blow NextBlow();
  void JudgeStalls(const std::vector<NemesisBook>& accounting);
  void Audit(const std::vector<NemesisBook>& accounting);

  const Options options_;
  uint64_t random_ = 0;
  absl::Duration began_;
  std::vector<NemesisCluster::Blow> deck_;
  std::unique_ptr<NemesisCluster> cluster_;
};

}  // namespace torchps
