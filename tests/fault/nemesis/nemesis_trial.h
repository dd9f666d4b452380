#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "tests/fault/nemesis/nemesis_cluster.h"
#include "tests/fault/nemesis/nemesis_journal.h"

namespace torchps {

// Exactly once while anything dies: servers and workers as processes, connections that are reset,
// SIGSTOP and SIGCONT, kill -9 of a random server or worker, servers that come back slowly, and
// parts of the network in which nothing passes; a blow every half to two seconds. For every (slot,
// step, block): applied once or not at all, and what was acknowledged is there, but for what a
// server that came back from a checkpoint has told to be lost. And a slot that no fault has hit
// stands still for a lease and two seconds at most, beyond the time that a server is away. The same
// where the gradients come from a device, and its link fails, which ends a worker.
//
// TORCHPS_NEMESIS_PUSHES says after how many steps of all slots together each trial ends, in place
// of its seconds; TORCHPS_NEMESIS_SEED draws another schedule. Where neither a sanitizer nor other
// tests take the machine's time, TORCHPS_NEMESIS_PUSHES holds a stall to its two seconds; else it
// is held to what only a slot that nobody lets go on exceeds.
//
// What must not happen is a failure of the test that owns it. Not thread-safe.
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
  // Each comes once before any comes again, so a short trial has them all.
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
