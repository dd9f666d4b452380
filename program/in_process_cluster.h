#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "server/server.h"

namespace torchps {

// Runs a job's servers inside this process, reached without a network. Used by `--local`, for
// example to debug a program, and by tests that run several workers as threads.
//
// The servers are complete, with threads and queues, but without sockets. Thread-safe. Channels
// must not be used after the cluster is destroyed.
class InProcessCluster {
 public:
  // `clock` must outlive the cluster. `dir`, `resume` and `model_dir` are passed to
  // Server::Options. If `dir` is empty, the servers do not store any files. Returns the errors of
  // Server::Start().
  static absl::StatusOr<std::unique_ptr<InProcessCluster>> Start(int servers, const Clock* clock,
                                                                 const std::string& dir = "",
                                                                 bool resume = false,
                                                                 const std::string& model_dir = "");

  // The servers' endpoints; the coordinator's is first.
  const std::vector<ServerEndpoint>& endpoints() const { return endpoints_; }

  Server& server(int index) { return *servers_[index]; }

 private:
  InProcessCluster() = default;

  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<ServerEndpoint> endpoints_;
};

}  // namespace torchps
