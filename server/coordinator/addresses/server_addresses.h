#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// Where the servers of a job are. Workers tell when they join, by their --servers. What a server
// says of itself outranks that, for as long as this coordinator lives: a server that has moved
// knows better. After a restart of the coordinator the last word counts until a server's next.
//
// Not thread-safe. Empty until somebody tells.
class ServerAddresses {
 public:
  // What a worker was told, of a job of so many servers; where it does not know, an address is
  // empty. Changes nothing where it is of another number.
  void Tell(const JoinRequest& request, int server_count);

  // What a server says of itself. Whether that changed anything. FAILED_PRECONDITION: the job has
  // no such server; INVALID_ARGUMENT: no HOST:PORT.
  absl::StatusOr<bool> Register(const ServerAddress& place, int server_count);

  // By server. Empty ones are not known.
  std::vector<std::string> addresses() const;
  // All of them, in their order; none where nobody has told.
  const std::vector<ServerAddress>& all() const { return places_; }

  void SaveTo(CoordinatorState* state) const;
  void Restore(const CoordinatorState& state);
  void Clear() { places_.clear(); }

 private:
  void MakeRoom(int server_count);

  std::vector<ServerAddress> places_;
};

}  // namespace torchps
