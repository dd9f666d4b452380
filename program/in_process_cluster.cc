#include "program/in_process_cluster.h"

#include <random>
#include <utility>

namespace torchps {

absl::StatusOr<std::unique_ptr<InProcessCluster>> InProcessCluster::Start(
    int servers, const Clock* clock, const std::string& dir, bool resume,
    const std::string& model_dir) {
  std::random_device random;
  std::unique_ptr<InProcessCluster> cluster(new InProcessCluster());
  for (int index = 0; index < servers; ++index) {
    Server::Options options;
    options.listen.clear();
    options.threads = 1;
    options.seed = (uint64_t{random()} << 32) | random();
    options.clock = clock;
    options.dir = dir;
    if (index == 0) options.model_dir = model_dir;
    options.resume = resume && index == 0;
    options.peer_channel = [cluster = cluster.get()](int peer, const std::string&) {
      return cluster->servers_[static_cast<size_t>(peer)]->InProcessChannel();
    };
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options));
    if (!server.ok()) return server.status();
    cluster->endpoints_.push_back({index, /*address=*/"", (*server)->InProcessChannel()});
    cluster->servers_.push_back(*std::move(server));
  }
  return cluster;
}

}  // namespace torchps
