#pragma once

#include <signal.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/tools/base/flag_table.h"

namespace torchps {

// Parses `psctl run --slow=SLOT:FACTOR` into slot -> FACTOR, the value of the worker's --slow
// (torchps/worker/loop/simulated_slowdown.h). INVALID_ARGUMENT: a factor is below 1, a slot is not
// in [0, workers) or named twice.
absl::StatusOr<std::map<int, std::string>> ParseSlowWorkers(const FlagValues& flags, int workers);

// Identifies a part of a cluster: "server 0", "worker 2", or one process of a multi-process worker:
// "worker 2 stage 1".
struct PartName {
  bool is_server = false;
  int index = 0;
  int stage = -1;
  std::string text() const {
    return (is_server ? "server " : "worker ") + std::to_string(index) +
           (stage < 0 ? "" : " stage " + std::to_string(stage));
  }
  friend bool operator==(const PartName& a, const PartName& b) {
    return a.is_server == b.is_server && a.index == b.index && a.stage == b.stage;
  }
  friend bool operator<(const PartName& a, const PartName& b) {
    if (a.is_server != b.is_server) return a.is_server;
    return a.index != b.index ? a.index < b.index : a.stage < b.stage;
  }
};

// Network path from a worker to a server.
struct NetworkLink {
  int worker = 0;
  int server = 0;
  friend bool operator==(const NetworkLink& a, const NetworkLink& b) {
    return a.worker == b.worker && a.server == b.server;
  }
  friend bool operator<(const NetworkLink& a, const NetworkLink& b) {
    return a.worker != b.worker ? a.worker < b.worker : a.server < b.server;
  }
};

// A fault to inject into a part or a network link.
struct Fault {
  enum class Kind {
    kKill,      // SIGKILL
    kLoseDisk,  // SIGKILL to a server, then delete the directory
    kFreeze,    // SIGSTOP
    kThaw,      // SIGCONT
    kCut,       // drop traffic on `links` silently
    kJoin,      // end of kCut
    kReset,     // break connections of `links`; allow new ones
    kCrowd,     // open idle or half-open connections to the server
    kDisperse,  // end of kCrowd
  };
  Kind kind = Kind::kKill;
  PartName part;  // for kCut to kReset: the part that the rule named or drew
  std::vector<NetworkLink> links = {};
  // True if the run sends a signal; the plan itself injects other faults.
  bool is_signal() const { return kind <= Kind::kThaw; }
  // REQUIRES: is_signal().
  int signal() const {
    if (kind == Kind::kFreeze) return SIGSTOP;
    return kind == Kind::kThaw ? SIGCONT : SIGKILL;
  }
};

// Chooses the faults that a run injects into its parts, and observes the parts. Parameters named
// `now` are times of the run's clock, except that Take() and NextAt() count from the start of
// training. Called on the run's thread.
class FaultPlan {
 public:
  virtual ~FaultPlan() = default;

  // Returns the time of the next fault; infinite if there are no more.
  virtual absl::Duration NextAt() const = 0;
  // Returns the faults due by `now`, in order.
  virtual std::vector<Fault> Take(absl::Duration now) = 0;

  // Called after the run sent a signal to a running part. For kLoseDisk, the run deletes the
  // directory before the restart. For other faults, the plan must now inject the fault.
  virtual void OnFault(const Fault& fault, absl::Duration now) = 0;
  // Called when a part has died, by a fault or otherwise, and when it is back: a server listens at
  // `address`, or a worker's process was started.
  virtual void OnDeath(const PartName& part, absl::Duration now) = 0;
  virtual void OnReturn(const PartName& part, const std::string& address, absl::Duration now) = 0;

  // Returns environment variables ("NAME=value") for a worker with these server addresses. An error
  // means that the worker cannot be started as planned.
  virtual absl::StatusOr<std::vector<std::string>> WorkerEnvironment(
      int /*worker*/, const std::vector<std::string>& /*servers*/) {
    return std::vector<std::string>();
  }
  // Called when a worker reports progress, and when the worker has finished.
  virtual void OnProgress(int /*worker*/, absl::Duration /*now*/) {}
  virtual void OnDone(int /*worker*/, absl::Duration /*now*/) {}
};

}  // namespace torchps
