// Tests that a worker learns the same model over shared memory and over the network.

#include <memory>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/async_job.h"
#include "tests/testing/plain_worker.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/job/job_spec.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/server/server.h"

namespace torchps {
namespace {

constexpr int kServers = 2;
constexpr int kSteps = 30;

struct Outcome {
  std::vector<float> values;
  uint64_t bytes_received = 0;
};

// Trains one worker on random gradients.
Outcome Train(bool shared, const char* mode) {
  const SteadyClock clock;
  StopLatch stop;
  std::vector<std::unique_ptr<Server>> servers;
  ParameterClient::Options options;
  for (int i = 0; i < kServers; ++i) {
    Server::Options server;
    server.clock = &clock;
    servers.push_back(*Server::Start(server));
    options.servers.push_back(ConnectToServer(i, servers.back()->address()));
  }
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "optimizer { sgd { momentum: 0.9 } learning_rate: 0.1 weight_decay: 0.01 } "
      "wire { block_bytes: 4096 }",
      &job));
  job.mutable_consistency()->set_mode(*mode == 'S' ? ConsistencySpec::SYNC
                                                   : ConsistencySpec::ASYNC);
  job.mutable_wire()->set_shared_memory(shared);
  options.job = *NormalizeJobSpec(AsyncUnlessSaid(job));
  Segment trained;
  trained.name = "w";
  trained.shape = {30007};
  Segment averaged;
  averaged.name = "mean";
  averaged.shape = {1500};
  averaged.averaged = true;
  options.layout = *ModelLayout::Create({trained, averaged});
  options.block_map = *BlockMap::Create(options.layout, options.job.wire().block_bytes(), kServers);
  options.job_id = 7;
  options.incarnation = 1;
  options.clock = &clock;
  options.stop = &stop;
  const auto segment = *PushSegment::Create(options.layout);
  options.push_segment = segment.get();
  const absl::Span<float> gradients = segment->buffer(0).first(options.layout.trained_size());

  Outcome outcome;
  outcome.values.assign(options.layout.size(), 1.0f);
  const auto client = *ParameterClient::Create(std::move(options));
  EXPECT_TRUE(client->Hello().ok());
  EXPECT_EQ(client->Initialize(outcome.values), absl::OkStatus());
  uint64_t random = 11;
  std::vector<float> means(1500);
  for (Step step = 1; step <= kSteps; ++step) {
    EXPECT_TRUE(client->Pull(step - 1, false, absl::MakeSpan(outcome.values)).ok());
    for (float& gradient : gradients) {
      gradient = static_cast<float>(UnitDouble(SplitMix64(random))) - 0.5f;
    }
    for (float& mean : means) mean = static_cast<float>(UnitDouble(SplitMix64(random)));
    const auto pushed = client->Push(step, /*weight=*/3, gradients, means);
    EXPECT_TRUE(pushed.ok()) << pushed.status();
  }
  EXPECT_TRUE(client->Pull(kSteps, false, absl::MakeSpan(outcome.values)).ok());
  for (const auto& server : servers) {
    const auto stub = ParameterService::NewStub(PlainChannel(server->address()));
    grpc::ClientContext context;
    ServerStatus status;
    EXPECT_TRUE(stub->GetServerStatus(&context, ServerStatusRequest(), &status).ok());
    EXPECT_EQ(status.slot(0).shared_memory(), shared);
    outcome.bytes_received += status.bytes_in();
  }
  EXPECT_EQ(client->Leave(), absl::OkStatus());
  return outcome;
}

TEST(SharedMemoryTest, SharedMemoryAndNetworkLearnTheSameBits) {
#ifdef TORCHPS_TSAN
  // The server and the test exchange memory through Debian's gRPC, which is not instrumented.
  GTEST_SKIP() << "ThreadSanitizer cannot see what gRPC orders";
#endif
  for (const char* mode : {"ASYNC", "SYNC"}) {
    const Outcome near = Train(/*shared=*/true, mode);
    const Outcome far = Train(/*shared=*/false, mode);
    EXPECT_EQ(near.values, far.values) << mode;
    // With shared memory, the servers receive only the initial values and the names of blocks over
    // the network.
    EXPECT_LT(near.bytes_received, far.bytes_received / 10) << mode;
  }
}

}  // namespace
}  // namespace torchps
