#include "torchps/client/coordinator_client.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// One Join takes this long on the test's clock. The client's patience is 1.5 times as long.
constexpr absl::Duration kLong = absl::Seconds(10);

// Answers the first `times` calls with `error`. Each Join advances the clock by kLong.
class SlowCoordinator final : public Coordinator::Service {
 public:
  SlowCoordinator(ManualClock* clock, absl::Status error, int times)
      : clock_(clock), error_(std::move(error)), times_(times) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~SlowCoordinator() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }

  grpc::Status Join(grpc::ServerContext*, const JoinRequest*, JoinReply* reply) override {
    MutexLock lock(&mutex_);
    clock_->Advance(kLong);
    if (times_-- > 0) return ToGrpcStatus(error_);
    reply->set_slot(3);
    return grpc::Status::OK;
  }

  grpc::Status LeaveJob(grpc::ServerContext*, const LeaveJobRequest*, LeaveJobReply*) override {
    MutexLock lock(&mutex_);
    return times_-- > 0 ? ToGrpcStatus(error_) : grpc::Status::OK;
  }

  // Asks for initial values in the first two answers, as if the first values were lost.
  grpc::Status AwaitStart(grpc::ServerContext*, const AwaitStartRequest* request,
                          AwaitStartReply* reply) override {
    MutexLock lock(&mutex_);
    starts_.push_back(*request);
    reply->set_action(starts_.size() < 3 ? AwaitStartReply::INITIALIZE : AwaitStartReply::START);
    if (starts_.size() == 2) reply->set_initialization(1);
    return grpc::Status::OK;
  }
  std::vector<AwaitStartRequest> starts() {
    MutexLock lock(&mutex_);
    return starts_;
  }

 private:
  ManualClock* const clock_;
  const absl::Status error_;
  Mutex mutex_;
  int times_ ABSL_GUARDED_BY(mutex_);
  std::vector<AwaitStartRequest> starts_ ABSL_GUARDED_BY(mutex_);
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

class CoordinatorClientTest : public ::testing::Test {
 protected:
  absl::StatusOr<JoinReply> Join(absl::Status error) {
    SlowCoordinator coordinator(&clock_, std::move(error), /*times=*/3);
    return CoordinatorClient(OptionsFor(coordinator)).Join(JoinRequest());
  }

  CoordinatorClient::Options OptionsFor(const SlowCoordinator& coordinator) {
    CoordinatorClient::Options options;
    options.server = ConnectToServer(0, coordinator.address());
    options.patience = kLong * 1.5;
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    options.clock = &clock_;
    options.stop = &stop_;
    return options;
  }

  ManualClock clock_;
  StopLatch stop_;
  std::vector<std::string> lines_;
};

TEST_F(CoordinatorClientTest, JoinWaitsWhileTheCoordinatorLoadsTheJob) {
  const auto joined = Join(BusyError("the job is being resumed", "reads checkpoint 7"));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->slot(), 3);
  ASSERT_FALSE(lines_.empty());
  EXPECT_TRUE(absl::EndsWith(lines_[0], ", which reads checkpoint 7")) << lines_[0];
}

TEST_F(CoordinatorClientTest, GivesUpOnAnUnavailableCoordinator) {
  const auto joined = Join(absl::UnavailableError("reads checkpoint 7"));
  EXPECT_TRUE(absl::IsUnavailable(joined.status())) << joined.status();
  EXPECT_TRUE(absl::StrContains(joined.status().message(), "has not answered for 15s"))
      << joined.status();
}

TEST_F(CoordinatorClientTest, RetriesLeaveAfterAStop) {
  SlowCoordinator coordinator(&clock_, absl::UnavailableError("comes back"), /*times=*/2);
  CoordinatorClient client(OptionsFor(coordinator));
  stop_.Stop("interrupted");
  const absl::Time began = absl::Now();
  EXPECT_TRUE(client.LeaveJob("interrupted").ok());
  // The jitter reduces the pauses of 0.1 s and 0.2 s by at most a quarter.
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(225));
}

TEST_F(CoordinatorClientTest, AwaitStartSendsTheNumberOfTheRequestedInitialization) {
  SlowCoordinator coordinator(&clock_, absl::OkStatus(), /*times=*/0);
  CoordinatorClient client(OptionsFor(coordinator));
  for (const bool initialized : {false, true, true}) {
    const absl::StatusOr<AwaitStartReply::Action> action = client.AwaitStart(initialized);
    ASSERT_TRUE(action.ok()) << action.status();
  }
  const std::vector<AwaitStartRequest> starts = coordinator.starts();
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_TRUE(starts[1].initialized());
  EXPECT_EQ(starts[1].initialization(), 0u);
  EXPECT_EQ(starts[2].initialization(), 1u);
}

}  // namespace
}  // namespace torchps
