#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "torchps/client/remote_server.h"
#include "torchps/common/types.h"

namespace torchps {

// Describes the slot that a server waits for.
struct BlockingSlot {
  SlotId slot = 0;
  absl::Duration time;  // since the slot's last pull or push
  std::string server;   // the reporting server: "server 1 at HOST:PORT"
};

// Summary of the servers' replies to renewals.
struct Renewals {
  // The slot that a server waited longest for; empty if no server waits.
  std::optional<BlockingSlot> blocking_slot;
  // By server index, for each server that admitted the slot.
  std::map<int, ServerLease::Contact> contacts;
};

// Renews or ends a slot's leases on all servers at once.
//
// Used by the heartbeat thread only, concurrently with the trainer's calls. Borrows the servers.
class SlotLeases {
 public:
  SlotLeases(SlotId slot, Incarnation incarnation, std::vector<RemoteServer*> servers)
      : slot_(slot), incarnation_(incarnation), servers_(std::move(servers)) {}

  // Renews the lease on each server that admitted the slot, within `timeout`. A server that no
  // longer knows the slot may have restarted. It is asked to restore the job, because without the
  // job it takes part in no checkpoint. The trainer's next call admits the slot again, but may have
  // to wait for another server, whose push log has no room until that checkpoint. `stalled_for`:
  // see UpkeepCalls::stalled_for (torchps/client/slot_upkeep.h). `longest_pause`: see
  // ServerLease::RenewalEnds.
  Renewals Renew(absl::Duration timeout, absl::Duration stalled_for, absl::Duration longest_pause);

  // Leaves the clocks of all servers that admitted the slot, except the `silent` servers. Gives up
  // after `timeout`. Renewals to silent servers continue, so that their recovery is noticed. The
  // slot returns with the next pull or push: the server answers it with ABORTED, and the client
  // sends Hello again.
  void StepAside(absl::Duration timeout, const std::vector<int>& silent);

 private:
  // Servers with a lease to renew.
  std::vector<RemoteServer*> Greeted() const;

  const SlotId slot_;
  const Incarnation incarnation_;
  const std::vector<RemoteServer*> servers_;
};

}  // namespace torchps
