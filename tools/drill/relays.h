#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/drill/fault_proxy.h"
#include "tools/run_plan/fault_plan.h"

namespace torchps {

// The network between the workers and the servers of a drill, to be broken: one relay on the
// loopback for each worker and server. Needs no rights and no rules of a firewall.
//
// Not thread-safe; each relay has a thread of its own.
class Relays {
 public:
  // The ways of `worker` to the servers at these addresses, in the servers' order. Says where they
  // are, as the environment of a worker takes it (client/calls/server_channel.h). Those that are
  // there stay. UNAVAILABLE: no port is free.
  absl::StatusOr<std::string> Open(int worker, const std::vector<std::string>& servers);

  // Nothing passes on these ways until each has been joined as often as it was cut.
  void Cut(const std::vector<NetworkLink>& links);
  void Join(const std::vector<NetworkLink>& links);
  // Breaks what is open on them.
  void Reset(const std::vector<NetworkLink>& links);

 private:
  struct Relay {
    std::unique_ptr<FaultProxy> proxy;
    int cuts = 0;
  };
  std::map<NetworkLink, Relay> relays_;
};

}  // namespace torchps
