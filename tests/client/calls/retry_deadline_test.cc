#include "torchps/client/calls/retry_deadline.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/client/calls/tcp_listener.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/security/connection_probe.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Status kAway = absl::UnavailableError("failed to connect to all addresses");
constexpr absl::Duration kTimeout = absl::Milliseconds(200);

class HandClock final : public Clock {
 public:
  absl::Duration Now() const override { return now; }
  absl::Duration now = absl::Seconds(1000);
};

class RetryDeadlineTest : public ::testing::Test {
 protected:
  RetryDeadline Make(const std::string& address) {
    RetryDeadline::Options options;
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    options.clock = &clock_;
    return RetryDeadline({1, address, nullptr}, options);
  }

  // Returns an address that refuses connections.
  static std::string ClosedAddress() {
    TcpListener listener(std::nullopt);
    return listener.address();
  }

  HandClock clock_;
  std::vector<std::string> lines_;
};

TEST_F(RetryDeadlineTest, LogsAfterTwoSecondsThenEveryTen) {
  const std::string address = ClosedAddress();
  RetryDeadline patience = Make(address);
  std::vector<int> said_at;
  for (int second = 0; second <= 25; ++second) {
    const size_t before = lines_.size();
    ASSERT_TRUE(patience.Failed(kAway).ok());
    if (lines_.size() > before) said_at.push_back(second);
    clock_.now += absl::Seconds(1);
  }
  EXPECT_THAT(said_at, ElementsAre(2, 12, 22));
  EXPECT_EQ(lines_[0], "waiting for server 1 at " + address + ": connection refused");
}

TEST_F(RetryDeadlineTest, GivesUpAfterTheTimeout) {
  const std::string address = ClosedAddress();
  RetryDeadline patience = Make(address);
  ASSERT_TRUE(patience.Failed(kAway).ok());
  clock_.now += absl::Seconds(60);
  const absl::Status status = patience.Failed(kAway).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(status.message(),
            "server 1 at " + address + " has not answered for 1m: connection refused");
}

TEST_F(RetryDeadlineTest, AnAnswerRestartsTheTimeout) {
  RetryDeadline patience = Make(ClosedAddress());
  ASSERT_TRUE(patience.Failed(kAway).ok());
  clock_.now += absl::Seconds(59);
  patience.Answered();
  ASSERT_TRUE(patience.Failed(kAway).ok());
  clock_.now += absl::Seconds(59);
  EXPECT_TRUE(patience.Failed(kAway).ok());
}

TEST_F(RetryDeadlineTest, TheDelayGrowsWithEachRetry) {
  RetryDeadline patience = Make(ClosedAddress());
  absl::Duration last = absl::ZeroDuration();
  for (int i = 0; i < 4; ++i) {
    const auto delay = patience.Failed(kAway);
    ASSERT_TRUE(delay.ok());
    EXPECT_GT(*delay, last);
    last = *delay;
  }
}

TEST_F(RetryDeadlineTest, RejectsAWebServer) {
  TcpListener web("HTTP/1.1 400 Bad Request\r\n\r\n");
  RetryDeadline patience = Make(web.address());
  ASSERT_TRUE(patience.Failed(kAway).ok());
  clock_.now += absl::Seconds(3);
  const absl::Status status = patience.Failed(kAway).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message(), web.address() + " answers, but is not a torchps server");
}

// The kernel accepts connections for a paused process, and nothing answers. A proxy in front of a
// dead server closes them.
TEST_F(RetryDeadlineTest, WaitsForAPeerThatIsSilentOrClosesConnections) {
  using Greeting = std::optional<std::string>;
  const std::pair<Greeting, std::string> peers[] = {{std::nullopt, "accepts, but does not answer"},
                                                    {Greeting(""), "closes the connection"}};
  for (const auto& [greeting, reason] : peers) {
    TcpListener peer(greeting);
    RetryDeadline patience = Make(peer.address());
    ASSERT_TRUE(patience.Failed(kAway).ok());
    clock_.now += absl::Seconds(30);
    EXPECT_TRUE(patience.Failed(kAway).ok()) << reason;
    clock_.now += absl::Minutes(10);
    const absl::Status status = patience.Failed(kAway).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
  }
}

TEST(ServerProbeTest, DetectsForeignAndSilentServers) {
  TcpListener web("SSH-2.0-OpenSSH_9.2\r\n");
  EXPECT_EQ(ProbeServer(web.address(), nullptr, kTimeout).kind, ProbeResult::kForeign);
  TcpListener silent(std::nullopt);
  EXPECT_EQ(ProbeServer(silent.address(), nullptr, kTimeout).kind, ProbeResult::kSilent);
  const std::string gone = silent.address();
  silent.Close();
  EXPECT_EQ(ProbeServer(gone, nullptr, kTimeout).kind, ProbeResult::kUnreachable);
  EXPECT_EQ(ProbeServer(gone, nullptr, kTimeout).reason, "connection refused");
  EXPECT_EQ(ProbeServer("no port", nullptr, kTimeout).kind, ProbeResult::kUnreachable);
}

TEST(ServerProbeTest, RecognizesAGrpcServer) {
  int port = 0;
  ParameterService::Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(ProbeServer(absl::StrCat("127.0.0.1:", port), nullptr, absl::Seconds(10)).kind,
            ProbeResult::kHttp2);
}

}  // namespace
}  // namespace torchps
