#include "torchps/tools/drill/fault_proxy.h"

#include <sys/socket.h>

#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
// Time during which no byte must arrive.
constexpr absl::Duration kSilence = absl::Milliseconds(50);

// Runs a proxy to a target that accepts connections one at a time.
class FaultProxyTest : public ::testing::Test {
 protected:
  void StartProxy(FaultProxy::Options options) {
    auto listener = ListenOnLoopback(&options.target);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    auto proxy = FaultProxy::Start(options);
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
  }

  void Connect() {
    auto client = ConnectTcp(proxy_->address());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    target_ = FileDescriptor(accept(listener_.get(), nullptr, nullptr));
  }

  FileDescriptor listener_;
  FileDescriptor client_;
  FileDescriptor target_;
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(FaultProxyTest, ForwardsBytesAndEndOfStreamBothWays) {
  StartProxy({});
  Connect();
  // More bytes than the buffers between client and target can hold.
  const std::string question(4 << 20, 'q');
  std::thread asker([&] {
    EXPECT_TRUE(WriteAll(client_, question).ok());
    shutdown(client_.get(), SHUT_WR);
  });
  const TcpEnd asked = ReadUntilEnd(target_, kPatience);
  asker.join();
  EXPECT_EQ(asked.kind, TcpEnd::kClosed);
  EXPECT_EQ(asked.bytes, question);
  ASSERT_TRUE(WriteAll(target_, "answer").ok());
  target_.Close();
  const TcpEnd answered = ReadUntilEnd(client_, kPatience);
  EXPECT_EQ(answered.kind, TcpEnd::kClosed);
  EXPECT_EQ(answered.bytes, "answer");
  EXPECT_EQ(proxy_->accepted(), 1);
  EXPECT_EQ(proxy_->resets(), 0);
}

TEST_F(FaultProxyTest, ResetsBothSidesOnRequest) {
  StartProxy({});
  Connect();
  ASSERT_TRUE(WriteAll(client_, "x").ok());
  ASSERT_EQ(ReadUntilEnd(target_, kPatience, 1).bytes, "x");
  proxy_->ResetAll();
  EXPECT_EQ(ReadUntilEnd(client_, kPatience).kind, TcpEnd::kReset);
  EXPECT_EQ(ReadUntilEnd(target_, kPatience).kind, TcpEnd::kReset);
  EXPECT_EQ(proxy_->resets(), 1);
  Connect();
  ASSERT_TRUE(WriteAll(client_, "y").ok());
  EXPECT_EQ(ReadUntilEnd(target_, kPatience, 1).bytes, "y") << "the proxy accepts new connections";
}

TEST_F(FaultProxyTest, ResetsPeriodicallyUntilHealed) {
  FaultProxy::Options options;
  options.reset_period = absl::Milliseconds(20);
  StartProxy(options);
  for (int i = 0; i < 3; ++i) {
    Connect();
    EXPECT_EQ(ReadUntilEnd(client_, kPatience).kind, TcpEnd::kReset);
  }
  proxy_->Heal();
  Connect();
  EXPECT_EQ(ReadUntilEnd(client_, kSilence).kind, TcpEnd::kOpen);
}

TEST_F(FaultProxyTest, SeedSelectsTheByteOfTheCut) {
  const auto positions = [this](uint64_t seed) {
    FaultProxy::Options options;
    options.cut_within_bytes = 1000;
    options.seed = seed;
    StartProxy(options);
    std::vector<size_t> reached;
    for (int i = 0; i < 5; ++i) {
      Connect();
      EXPECT_TRUE(WriteAll(client_, std::string(1000, 'x')).ok());
      EXPECT_EQ(ReadUntilEnd(client_, kPatience).kind, TcpEnd::kReset);
      reached.push_back(ReadUntilEnd(target_, kPatience).bytes.size());
      EXPECT_GE(reached.back(), 1);
      EXPECT_LE(reached.back(), 1000);
    }
    return reached;
  };
  const std::vector<size_t> first = positions(7);
  EXPECT_EQ(positions(7), first);
  EXPECT_NE(positions(8), first);
}

TEST_F(FaultProxyTest, BlackHoleHoldsBytesUntilLifted) {
  StartProxy({});
  Connect();
  proxy_->SetBlackHole(true);
  ASSERT_TRUE(WriteAll(client_, "x").ok());
  EXPECT_EQ(ReadUntilEnd(target_, kSilence, 1).bytes, "");
  EXPECT_EQ(ReadUntilEnd(client_, kSilence).kind, TcpEnd::kOpen);
  proxy_->SetBlackHole(false);
  EXPECT_EQ(ReadUntilEnd(target_, kPatience, 1).bytes, "x");
}

TEST_F(FaultProxyTest, StopsPromptlyWithOpenConnections) {
  StartProxy({});
  Connect();
  proxy_.reset();
  EXPECT_EQ(ReadUntilEnd(client_, kPatience).kind, TcpEnd::kReset);
}

TEST_F(FaultProxyTest, UnreachableTargetResetsTheClient) {
  StartProxy({});
  listener_.Close();
  auto client = ConnectTcp(proxy_->address());
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(ReadUntilEnd(*client, kPatience).kind, TcpEnd::kReset);
}

}  // namespace
}  // namespace torchps
