#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace torchps {

// A part of a cluster: "server 0", "worker 2".
struct PartName {
  bool is_server = false;
  int index = 0;
  std::string text() const { return (is_server ? "server " : "worker ") + std::to_string(index); }
  friend bool operator==(const PartName& a, const PartName& b) {
    return a.is_server == b.is_server && a.index == b.index;
  }
  friend bool operator<(const PartName& a, const PartName& b) {
    return a.is_server != b.is_server ? a.is_server : a.index < b.index;
  }
};

// Something that is done to a part on purpose.
struct Fault {
  enum class Kind {
    kKill,    // SIGKILL
    kFreeze,  // SIGSTOP
    kThaw,    // SIGCONT
  };
  Kind kind = Kind::kKill;
  PartName part;
};

// What a run does to its own parts, and what it tells about them. Times are those since training
// began. Called from the run's one thread.
class FaultPlan {
 public:
  virtual ~FaultPlan() = default;

  // When Take() will have something next; infinite: never again.
  virtual absl::Duration NextAt() const = 0;
  // What is to be done by `now`, in order.
  virtual std::vector<Fault> Take(absl::Duration now) = 0;

  // A fault was done, to a part that was running.
  virtual void OnFault(const Fault& fault, absl::Duration now) = 0;
  // A part has died, by a fault or by itself; and is there again: a server listens at `address`, a
  // worker's process has been started.
  virtual void OnDeath(const PartName& part, absl::Duration now) = 0;
  virtual void OnReturn(const PartName& part, const std::string& address, absl::Duration now) = 0;
};

}  // namespace torchps
