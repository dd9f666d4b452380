#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/server/rpc/poller.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Answers Leave calls, refuses them, or lets the caller wait.
class LeftServer final : public ParameterService::Service {
 public:
  LeftServer() {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    // Uses a real port, because ThreadSanitizer cannot follow gRPC's in-process transport.
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    server_ = builder.BuildAndStart();
  }
  ~LeftServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::unique_ptr<ParameterService::Stub> stub() const {
    return ParameterService::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                                                         grpc::InsecureChannelCredentials()));
  }

  grpc::Status Leave(grpc::ServerContext* context, const LeaveRequest*, LeaveReply*) override {
    ++asked;
    while (hangs && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return refuses ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no such slot") : grpc::Status::OK;
  }

  std::atomic<int> asked{0};
  std::atomic<bool> hangs{false};
  std::atomic<bool> refuses{false};

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class ServerCallsTest : public ::testing::Test {
 protected:
  ServerCallsTest() {
    for (const LeftServer& server : servers_) stubs_.push_back(server.stub());
  }
  std::vector<absl::StatusOr<LeaveReply>> Ask(const std::vector<int>& asked,
                                              absl::Duration timeout = absl::Minutes(1)) {
    const LeaveRequest request;
    return calls_.Ask<LeaveReply>(
        asked, stubs_.size(), timeout,
        [&](int server, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
          return stubs_[server]->AsyncLeave(context, request, queue);
        });
  }

  LeftServer servers_[3];
  std::vector<std::unique_ptr<ParameterService::Stub>> stubs_;
  ServerCalls calls_;
};

TEST_F(ServerCallsTest, AnswersAreInTheOrderOfTheServers) {
  servers_[2].refuses = true;
  const auto replies = Ask({0, 2});
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_TRUE(replies[0].ok()) << replies[0].status();
  EXPECT_TRUE(absl::IsUnknown(replies[1].status()));
  EXPECT_EQ(servers_[1].asked, 0);
  EXPECT_TRUE(absl::IsNotFound(replies[2].status()));
  EXPECT_THAT(std::string(replies[2].status().message()), HasSubstr("no such slot"));
}

TEST_F(ServerCallsTest, ReturnsAtOnceWithoutCalls) { EXPECT_EQ(Ask({}).size(), 3u); }

TEST_F(ServerCallsTest, WaitsForASilentServerUntilTheTimeout) {
  servers_[1].hangs = true;
  const auto replies = Ask({1}, absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(replies[1].status())) << replies[1].status();
}

TEST_F(ServerCallsTest, StopCancelsCallsAndPreventsNewOnes) {
  servers_[1].hangs = true;
  std::thread stopper([&] {
    EXPECT_TRUE(Eventually([&] { return servers_[0].asked > 0 && servers_[1].asked > 0; }));
    calls_.Stop();
  });
  const auto replies = Ask({0, 1});
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(replies[1].status())) << replies[1].status();
  EXPECT_TRUE(absl::IsCancelled(Ask({2})[2].status()));
  EXPECT_EQ(servers_[2].asked, 0);
}

}  // namespace
}  // namespace torchps
