#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/remote_server.h"
#include "client/server_lease.h"
#include "common/ids.h"

namespace torchps {

// The slot that a server waits for.
struct BlockingSlot {
  SlotId slot = 0;
  absl::Duration time;  // since the server last heard it pull or push
  std::string server;   // which one says so: "server 1 at HOST:PORT"
};

// What the servers have said to renewals.
struct Renewals {
  // Where at least one waits for a slot: for that which it has waited longest for.
  absl::optional<BlockingSlot> blocking_slot;
  // Of each server that has let the slot in, by index.
  std::map<int, ServerLease::Contact> contacts;
};

// A slot's leases at its servers, renewed or given up at all of them at once.
//
// Used by one thread, the heartbeat's, beside what the trainer's does with the servers. Borrows
// them.
class SlotLeases {
 public:
  SlotLeases(SlotId slot, Incarnation incarnation, std::vector<RemoteServer*> servers)
      : slot_(slot), incarnation_(incarnation), servers_(std::move(servers)) {}

  // Renews the lease at every server that has been greeted; takes at most `timeout`. `standing`:
  // for how long the trainer has been at one piece of its own work. `longest_pause`: as of
  // ServerLease::RenewalEnds.
  Renewals Renew(absl::Duration timeout, absl::Duration stalled_for, absl::Duration longest_pause);

  // Leaves the clocks of all servers that have been greeted, but for those that are `silent`, as
  // far as they can be reached in `timeout`. A silent one goes on being asked, so that it stays
  // known whether it is. The slot is back with its next pull or push, which a server that it has
  // left answers with ABORTED, and a greeting follows.
  void StepAside(absl::Duration timeout, const std::vector<int>& silent);

 private:
  // Those to be spoken to.
  std::vector<RemoteServer*> Greeted() const;

  const SlotId slot_;
  const Incarnation incarnation_;
  const std::vector<RemoteServer*> servers_;
};

}  // namespace torchps
