// Moves servers, with their directories, to other addresses while a worker pushes. The worker finds
// them again, and each gradient is applied once.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/fault/integer_rig.h"
#include "tests/testing/eventually.h"
#include "tests/testing/plain_worker.h"
#include "torchps/client/calls/address_resolver.h"
#include "torchps/client/parameter_client.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/server/server.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/transport/server_address.h"

namespace torchps {
namespace {

constexpr int kServers = IntegerRig::kServers;
constexpr int64_t kTrained = IntegerRig::kTrained;
constexpr int64_t kAveraged = IntegerRig::kAveraged;

class MovedServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { PrepareGrpcProcess(); }

  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    directory_ = absl::StrCat(testing::TempDir(), "/", name);
    servers_.resize(kServers);
    for (int i = 0; i < kServers; ++i) StartServer(i);
  }

  // Simulates a process that was restarted on another machine with the same directory: the port
  // differs each time.
  void StartServer(int i) {
    Server::Options options;
    options.clock = &rig_.clock();
    options.seed = ++incarnations_;
    options.dir = absl::StrCat(directory_, "/", i);
    options.address_file = AddressFile(i);
    std::string before;
    if (servers_[i] != nullptr) before = servers_[i]->address();
    // The kernel may assign the previous port again.
    do {
      servers_[i] = nullptr;
      auto server = Server::Start(options);
      ASSERT_TRUE(server.ok()) << server.status();
      servers_[i] = *std::move(server);
    } while (servers_[i]->address() == before);
  }

  std::string AddressFile(int i) const {
    return absl::StrCat(testing::TempDir(), "/address_",
                        directory_.substr(directory_.rfind('/') + 1), "_", i);
  }

  // Joins the job and returns a worker's client with these server addresses.
  std::unique_ptr<ParameterClient> Join(const std::vector<std::string>& told) {
    AddressResolver::Options book;
    for (const std::string& text : told) book.servers.push_back(*AddressSource::Parse(text));
    ParameterClient::Options options = rig_.ClientOptions(/*slot=*/0, {});
    options.servers = GetEndpoints(std::make_shared<AddressResolver>(std::move(book)));

    JoinRequest request;
    request.set_protocol_version(kProtocolVersion);
    *request.mutable_job() = rig_.job();
    // LOG, so that restarted servers restore acknowledged pushes.
    request.mutable_job()->mutable_durability()->set_level(DurabilitySpec::LOG);
    *request.mutable_layout() = EncodeLayout(rig_.layout());
    request.set_wanted_slot(-1);
    request.set_nonce(1);
    request.set_train_samples(1000);
    request.set_server_count(kServers);
    for (const ServerEndpoint& server : options.servers) {
      request.add_server_address(GetAddress(server));
    }
    const auto stub = Coordinator::NewStub(PlainChannel(servers_[0]->address()));
    grpc::ClientContext context;
    JoinReply reply;
    const grpc::Status joined = stub->Join(&context, request, &reply);
    EXPECT_TRUE(joined.ok()) << joined.error_message();
    options.job = reply.job();
    options.job_id = reply.job_id();
    options.slot = reply.slot();
    options.incarnation = reply.incarnation();
    auto client = ParameterClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  std::vector<std::string> Registered() {
    const auto stub = Coordinator::NewStub(PlainChannel(servers_[0]->address()));
    grpc::ClientContext context;
    JobStatus status;
    const grpc::Status asked = stub->GetJobStatus(&context, JobStatusRequest(), &status);
    EXPECT_TRUE(asked.ok()) << asked.error_message();
    std::vector<std::string> addresses;
    for (const ServerAddress& place : status.server()) {
      addresses.push_back(place.server_incarnation() == 0 ? "" : place.address());
    }
    return addresses;
  }

  void Begin(ParameterClient& client) {
    ASSERT_TRUE(client.Hello().ok());
    ASSERT_TRUE(client.Initialize(std::vector<float>(kTrained + kAveraged, 0.0f)).ok());
  }

  void Step(ParameterClient& client) {
    std::vector<float> values(kTrained + kAveraged);
    const auto pulled = client.Pull(step_, /*read_only=*/false, absl::MakeSpan(values));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    ++step_;
    const std::vector<int> gradient = IntegerRig::Gradient(0, step_);
    const std::vector<float> floats(gradient.begin(), gradient.end());
    const auto pushed =
        client.Push(step_, /*weight=*/1, floats, std::vector<float>(kAveraged, 1.0f));
    ASSERT_TRUE(pushed.ok()) << pushed.status();
    for (int64_t i = 0; i < kTrained; ++i) expected_[i] -= floats[i];
  }

  // Expects that the values and the ledgers contain each gradient once.
  void Audit(ParameterClient& client) {
    std::vector<float> values(kTrained + kAveraged);
    const auto pulled = client.Pull(step_, /*read_only=*/true, absl::MakeSpan(values));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    values.resize(kTrained);
    EXPECT_EQ(values, expected_);
    int64_t applied = 0;
    for (const auto& server : servers_) {
      const ServerStatus status = IntegerRig::GetStatus(server->address());
      for (const LedgerEntryStatus& row : status.ledger()) {
        applied += static_cast<int64_t>(row.applied());
      }
    }
    EXPECT_EQ(applied, step_ * static_cast<int64_t>(rig_.block_map().blocks().size()));
    EXPECT_EQ(client.TakeRolledBack().blocks, 0u);
  }

  IntegerRig rig_{ConsistencySpec::ASYNC, /*staleness_bound=*/-1, /*lease_seconds=*/60};
  std::string directory_;
  uint64_t incarnations_ = 20261125;
  std::vector<std::unique_ptr<Server>> servers_;
  torchps::Step step_ = 0;
  std::vector<float> expected_ = std::vector<float>(kTrained);
};

TEST_F(MovedServerTest, AWorkerFindsAMovedServerThroughTheCoordinator) {
  const auto client = Join({servers_[0]->address(), servers_[1]->address()});
  ASSERT_NO_FATAL_FAILURE(Begin(*client));
  ASSERT_NO_FATAL_FAILURE(Step(*client));
  // Waits for the registration. From then on, server 1's directory contains the coordinator's
  // address, which a moved server needs to register again.
  ASSERT_TRUE(Eventually([&] { return Registered()[1] == servers_[1]->address(); }));
  for (int moves = 0; moves < 2; ++moves) {
    ASSERT_NO_FATAL_FAILURE(StartServer(1));
    ASSERT_NO_FATAL_FAILURE(Step(*client));
    ASSERT_NO_FATAL_FAILURE(Step(*client));
    EXPECT_EQ(Registered()[1], servers_[1]->address());
  }
  Audit(*client);
}

TEST_F(MovedServerTest, AWorkerFindsMovedServersThroughAddressFiles) {
  const auto client =
      Join({absl::StrCat("file:", AddressFile(0)), absl::StrCat("file:", AddressFile(1))});
  ASSERT_NO_FATAL_FAILURE(Begin(*client));
  ASSERT_NO_FATAL_FAILURE(Step(*client));
  ASSERT_NO_FATAL_FAILURE(StartServer(0));
  ASSERT_NO_FATAL_FAILURE(StartServer(1));
  ASSERT_NO_FATAL_FAILURE(Step(*client));
  ASSERT_NO_FATAL_FAILURE(Step(*client));
  Audit(*client);
}

}  // namespace
}  // namespace torchps
