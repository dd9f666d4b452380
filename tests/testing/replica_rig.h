#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "common/stop_latch.h"
#include "data/dataset.h"
#include "program/in_process_cluster.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.pb.h"
#include "security/certificate_files.h"
#include "torch/types.h"
#include "worker/objective.h"
#include "worker/pipeline/member_task.h"
#include "worker/stages/stages.h"

namespace torchps {

// A job on servers inside this process, and replicas of it whose members are threads that reach
// each other by gRPC on a loopback. Fails the test that made it where servers do not start.
class ReplicaRig {
 public:
  struct Options {
    JobSpec job;  // normalised
    // Makes the model's stages, in their order.
    std::function<std::vector<ModelStage>()> make;
    Objective objective = CrossEntropy();
    // Of the last stage's process, where that is started with another program.
    std::optional<Objective> last_objective;
    DataSource data;
    int servers = 2;
    // WorkerOptions::micro_batches.
    int micro_batches = 0;
    // WorkerOptions::loader_threads, of every member.
    int loader_threads = 0;
    // Of the members' exchange.
    absl::Duration lease = absl::Seconds(10);
    // Of the members, for what they say to each other; null: without TLS.
    std::shared_ptr<CertificateFiles> certificates = nullptr;
  };

  // Which member is at what.
  struct Moment {
    int replica = 0;
    int stage = 0;
    MemberPhase phase = MemberPhase::kPull;
    int64_t order = 0;
  };

  explicit ReplicaRig(Options options);

  // Runs so many replicas at once to their end; by replica and stage what came of it. `kill` is
  // asked at every moment, on the member's thread; true: that member dies then and there, with no
  // word to anybody. Its status is CANCELLED.
  std::vector<std::vector<absl::Status>> Run(
      int replicas, const std::function<bool(const Moment& moment)>& kill = nullptr);

  // The same job by workers that hold the whole model, at once. The first error of one of them.
  absl::Status RunUndivided(int workers = 1);

  // The trained values that the servers have, in the order of the stages.
  torch::Tensor ReadServers();
  ServerStatus GetStatus(int server);
  JobStatus Job();

 private:
  const Options options_;
  SteadyClock clock_;
  StopLatch stop_;
  std::unique_ptr<InProcessCluster> cluster_;
  bool someone_died_ = false;
};

}  // namespace torchps
