#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "torch/types.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/security/certificate_files.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/pipeline/stage_work.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {

// Runs a job with servers inside this process, and replicas with one thread per member. Members
// communicate by gRPC over loopback. Fails the test if a server does not start.
class ReplicaRig {
 public:
  struct Options {
    JobSpec job;  // normalized
    // Creates the model's stages, in order.
    std::function<std::vector<ModelStage>()> make;
    Objective objective = CrossEntropy();
    // Objective of the last stage if it differs, as when that stage's process runs another program.
    std::optional<Objective> last_objective;
    DataSource data;
    int servers = 2;
    // WorkerOptions::micro_batches.
    int micro_batches = 0;
    // WorkerOptions::loader_threads of each member.
    int loader_threads = 0;
    // Lease of the members' exchange.
    absl::Duration lease = absl::Seconds(10);
    // Certificates for calls between the members; null: without TLS.
    std::shared_ptr<CertificateFiles> certificates = nullptr;
  };

  // Identifies a member, the current phase, and the leader's order that the member executes.
  struct Moment {
    int replica = 0;
    int stage = 0;
    MemberPhase phase = MemberPhase::kPull;
    int64_t order = 0;
  };

  explicit ReplicaRig(Options options);

  // Runs this many replicas at once until they end. Returns the statuses by replica and stage.
  // Calls `kill` in each phase, on the member's thread. If `kill` returns true, the member dies at
  // once, without notice to the other members, and its status is CANCELLED.
  std::vector<std::vector<absl::Status>> Run(
      int replicas, const std::function<bool(const Moment& moment)>& kill = nullptr);

  // Runs the same job with `workers` concurrent workers that each hold the whole model. Returns the
  // first error.
  absl::Status RunUndivided(int workers = 1);

  // Returns the servers' values: the trained parameters in the order of the stages, then the
  // averaged buffers.
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
