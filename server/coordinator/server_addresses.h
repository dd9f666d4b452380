#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// Tracks the addresses of a job's servers. Workers report addresses from --servers when they join.
// An address that a server registers itself overrides them while this coordinator runs. After a
// restart of the coordinator, the last address counts until the server registers again.
//
// Not thread-safe. Empty until the first report.
class ServerAddresses {
 public:
  // Records the addresses from a worker's request; unknown addresses are empty. Ignores the request
  // if it lists a different number of servers.
  void CheckAndLearn(const JoinRequest& request, int server_count);

  // Records the address that a server registers. Returns true if this changed anything. Returns
  // FAILED_PRECONDITION if the index is out of range, and INVALID_ARGUMENT if the address is not
  // HOST:PORT.
  absl::StatusOr<bool> Register(const ServerAddress& place, int server_count);

  // Returns the addresses by server index. Unknown addresses are empty.
  std::vector<std::string> addresses() const;
  // Returns all entries in server order. Empty before the first report.
  const std::vector<ServerAddress>& all() const { return server_addresses_; }

  void SaveTo(CoordinatorState* state) const;
  void Restore(const CoordinatorState& state);
  void Clear() { server_addresses_.clear(); }

 private:
  void MakeRoom(int server_count);

  std::vector<ServerAddress> server_addresses_;
};

}  // namespace torchps
