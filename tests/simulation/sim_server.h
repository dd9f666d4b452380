#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "proto/frame_codec.h"
#include "proto/parameter_service.pb.h"
#include "server/job_coordinator.h"
#include "server/parameter_server.h"
#include "tests/simulation/books_model.h"
#include "tests/simulation/network.h"
#include "tests/simulation/process.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/server_model.h"
#include "tests/simulation/world.h"

namespace torchps::simulation {

// What a pull brings.
struct PulledBlock {
  BlockId block = 0;
  Version version = 0;
  bool unchanged = false;
};
struct Pulled {
  Step floor = 0;
  std::vector<PulledBlock> blocks;
};

// A ps_server: the real ParameterServer and, at server 0, the real JobCoordinator, in a shell that
// plays gRPC's part. After each call the models are compared with what has become of it.
class SimServer {
 public:
  SimServer(World* world, Network* network, const Scenario* scenario, Fault fault, int index);

  Process* process() { return &process_; }
  int index() const { return index_; }
  ServerModel& model() { return model_; }
  const BooksModel* books() const { return books_.get(); }

  void Start();
  void Kill();

  // The parameter service. A push is one frame for each block, told which of how many it is.
  using Arrival = Network::ArrivalPointer;
  void Hello(const Arrival& arrival, const HelloRequest& request);
  void Push(const Arrival& arrival, const PushHeader& header, size_t index, size_t count);
  void Pull(const Arrival& arrival, const PullRequest& request);
  void Renew(const Arrival& arrival, const RenewRequest& request);
  void Leave(const Arrival& arrival, const LeaveRequest& request);

  // The coordinator's. REQUIRES: index() is 0.
  template <typename Request, typename Response>
  void Prompt(const Arrival& arrival,
              absl::StatusOr<Response> (JobCoordinator::*method)(const Request&, absl::Duration),
              const Request& request) {
    const absl::StatusOr<Response> response = (coordinator_.get()->*method)(request, world_->now());
    arrival->Answer(response);
    AfterCoordination();
  }
  void AwaitStart(const Arrival& arrival, const AwaitStartRequest& request);
  void NextWork(const Arrival& arrival, const NextWorkRequest& request);
  // As the coordinator tells it.
  JobStatus Status();

 private:
  void Tick();
  // Gives the coordinator's answers and checks its books.
  void AfterCoordination();
  void SendBlocks(const Arrival& arrival, HostedJob* job, const PullRequest& request,
                  std::shared_ptr<Pulled> pulled);

  World* const world_;
  Network* const network_;
  const Scenario* const scenario_;
  const Fault fault_;
  const int index_;
  Process process_;
  ServerModel model_;
  std::unique_ptr<ParameterServer> server_;
  std::unique_ptr<JobCoordinator> coordinator_;
  std::unique_ptr<BooksModel> books_;
  bool has_job_ = false;
  uint64_t last_wait_ = 0;
};

}  // namespace torchps::simulation
