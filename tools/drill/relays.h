#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/drill/fault_proxy.h"
#include "tools/run_plan/fault_plan.h"

namespace torchps {

// Relays the connections between the workers and servers of a drill, so that the drill can break
// them: one proxy on the loopback per worker and server. Needs neither root nor firewall rules.
//
// Not thread-safe; each relay runs a thread.
class Relays {
 public:
  // Opens relays from `worker` to the servers at these addresses, in server order, and keeps
  // existing relays. Returns the value for the worker's environment
  // (client/calls/server_channel.h). UNAVAILABLE: cannot listen on a port.
  absl::StatusOr<std::string> Open(int worker, const std::vector<std::string>& servers);

  // Cut() blocks these links until Join() is called as often as Cut().
  void Cut(const std::vector<NetworkLink>& links);
  void Join(const std::vector<NetworkLink>& links);
  // Resets the open connections of these links.
  void Reset(const std::vector<NetworkLink>& links);

 private:
  struct Relay {
    std::unique_ptr<FaultProxy> proxy;
    int cuts = 0;
  };
  std::map<NetworkLink, Relay> relays_;
};

}  // namespace torchps
