#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace torchps {

// A part of a cluster: "server 0", "worker 2"; of a worker of several processes one of them,
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

// The way from a worker to a server.
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

// Something that is done on purpose to a part, or to what lies between parts.
struct Fault {
  enum class Kind {
    kKill,      // SIGKILL
    kLoseDisk,  // the same, to a server whose directory is then deleted
    kFreeze,    // SIGSTOP
    kThaw,      // SIGCONT
    kCut,       // nothing passes on `links`, and nobody is told
    kJoin,      // it passes again
    kReset,     // the connections of `links` break; new ones are let through
    kCrowd,     // many connections to the server that say nothing, or half of what they have to
    kDisperse,  // these end
  };
  Kind kind = Kind::kKill;
  PartName part;  // of kCut to kReset: whom the rule named, or drew
  std::vector<NetworkLink> links = {};
  // The run sends it; the plan does everything else.
  bool is_signal() const { return kind <= Kind::kThaw; }
  // REQUIRES: is_signal().
  int signal() const {
    if (kind == Kind::kFreeze) return SIGSTOP;
    return kind == Kind::kThaw ? SIGCONT : SIGKILL;
  }
};

// What a run does to its own parts, and what it tells about them. Times that are handed in are of
// the run's clock; those of Take() and NextAt() are since training began. Called from the run's one
// thread.
class FaultPlan {
 public:
  virtual ~FaultPlan() = default;

  // When Take() will have something next; infinite: never again.
  virtual absl::Duration NextAt() const = 0;
  // What is to be done by `now`, in order.
  virtual std::vector<Fault> Take(absl::Duration now) = 0;

  // A signal was sent, to a part that was running; of kLoseDisk the run deletes the directory
  // before it starts the server again. Any other fault is now to be done by the plan itself.
  virtual void OnFault(const Fault& fault, absl::Duration now) = 0;
  // A part has died, by a fault or by itself; and is there again: a server listens at `address`, a
  // worker's process has been started.
  virtual void OnDeath(const PartName& part, absl::Duration now) = 0;
  virtual void OnReturn(const PartName& part, const std::string& address, absl::Duration now) = 0;

  // "NAME=value" for a worker whose servers are at these addresses. Other than OK: it cannot be
  // started as the plan wants it.
  virtual absl::StatusOr<std::vector<std::string>> WorkerEnvironment(
      int /*worker*/, const std::vector<std::string>& /*servers*/) {
    return std::vector<std::string>();
  }
  // A worker told that it has trained since it last told so, and that it has nothing more to do.
  virtual void OnProgress(int /*worker*/, absl::Duration /*now*/) {}
  virtual void OnDone(int /*worker*/, absl::Duration /*now*/) {}
};

}  // namespace torchps
