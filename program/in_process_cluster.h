#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "server/server.h"

namespace torchps {

// The servers of one job inside this process, reached without a network: for `--local`, where a
// program trains alone under a debugger, and for tests, where several workers are threads.
//
// The servers are whole, with their own threads and queues; only the sockets are left out. Thread-
// safe. Channels must not be used any more when the cluster is gone.
class InProcessCluster {
 public:
  // `clock` outlives the cluster. `dir`, `resume` and `model_dir` are those of Server::Options;
  // with an empty `dir` the servers keep nothing. Errors of Server::Start().
  static absl::StatusOr<std::unique_ptr<InProcessCluster>> Start(int servers, const Clock* clock,
                                                                 const std::string& dir = "",
                                                                 bool resume = false,
                                                                 const std::string& model_dir = "");

  // One per server, the coordinator's first.
  const std::vector<ServerEndpoint>& endpoints() const { return endpoints_; }

  Server& server(int index) { return *servers_[index]; }

 private:
  InProcessCluster() = default;

  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<ServerEndpoint> endpoints_;
};

}  // namespace torchps
