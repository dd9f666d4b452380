#include "torchps/server/rpc/handshake_limiter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

class HandshakeLimiterTest : public ::testing::Test {
 protected:
  struct Pair {
    FileDescriptor here;
    FileDescriptor there;
  };
  static Pair Connect() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  }

  static HandshakeLimiter::Limits ThreeInAllTwoOfANetwork() {
    HandshakeLimiter::Limits limits;
    limits.most = 3;
    limits.max_of_a_network = 2;
    limits.patience = kPatience;
    return limits;
  }

  Pair Begin(const std::string& address) {
    Pair pair = Connect();
    handshake_limiter_.Begin(pair.here.get(), address, now_);
    return pair;
  }
  bool HasRoom(const std::string& host) {
    return handshake_limiter_.MakeRoom(absl::StrCat(host, ":1"), now_);
  }
  // Returns true if the limiter signals an ended handshake.
  bool Tells() const {
    pollfd ready{handshake_limiter_.event_fd(), POLLIN, 0};
    return poll(&ready, 1, /*timeout=*/0) == 1;
  }

  absl::Duration now_ = absl::Hours(1);
  HandshakeLimiter handshake_limiter_{ThreeInAllTwoOfANetwork()};
};

TEST_F(HandshakeLimiterTest, LimitsHandshakesPerNetworkAndInTotal) {
  EXPECT_TRUE(handshake_limiter_.empty());
  const Pair first = Begin("10.0.0.1:4000");
  EXPECT_FALSE(handshake_limiter_.empty());
  EXPECT_TRUE(HasRoom("10.0.0.1"));
  const Pair second = Begin("10.0.0.1:4001");
  EXPECT_FALSE(HasRoom("10.0.0.1"));
  EXPECT_TRUE(HasRoom("10.0.0.2"));
  const Pair third = Begin("[::1]:4000");
  EXPECT_FALSE(HasRoom("10.0.0.2"));
  handshake_limiter_.Sweep(now_);
  EXPECT_FALSE(HasRoom("10.0.0.2")) << "all three handshakes are active";
}

TEST_F(HandshakeLimiterTest, ACallEndsItsHandshakeAndSignals) {
  const Pair first = Begin("10.0.0.1:4000");
  const Pair second = Begin("10.0.0.1:4001");
  handshake_limiter_.HasCalled("10.0.0.1:4002");
  EXPECT_FALSE(HasRoom("10.0.0.1"));
  EXPECT_FALSE(Tells());
  handshake_limiter_.HasCalled("10.0.0.1:4001");
  EXPECT_TRUE(HasRoom("10.0.0.1"));
  EXPECT_TRUE(Tells());
  handshake_limiter_.HasCalled("10.0.0.1:4001");
  handshake_limiter_.Sweep(now_);
  EXPECT_FALSE(Tells());
  EXPECT_FALSE(handshake_limiter_.empty());
}

TEST_F(HandshakeLimiterTest, DetectsAConnectionClosedByEitherSide) {
  Pair first = Begin("10.0.0.1:4000");
  Pair second = Begin("10.0.0.1:4001");
  first.there.Close();
  EXPECT_TRUE(Tells());
  handshake_limiter_.Sweep(now_);
  EXPECT_TRUE(HasRoom("10.0.0.1"));
  EXPECT_FALSE(Tells());
  // gRPC owns this socket and closes it without a signal.
  second.here.Close();
  handshake_limiter_.Sweep(now_);
  EXPECT_TRUE(handshake_limiter_.empty());
}

TEST_F(HandshakeLimiterTest, AReusedDescriptorNumberCountsOnce) {
  Pair first = Begin("10.0.0.1:4000");
  const int number = first.here.get();
  first.here.Close();
  // The number now belongs to another socket, on which a new handshake begins.
  Pair next = Connect();
  ASSERT_EQ(dup2(next.here.get(), number), number);
  const FileDescriptor again(number);
  handshake_limiter_.Begin(number, "10.0.0.1:4001", now_);
  const Pair second = Begin("10.0.0.1:4002");
  EXPECT_FALSE(HasRoom("10.0.0.1")) << "two handshakes, not three";
  handshake_limiter_.HasCalled("10.0.0.1:4000");
  EXPECT_FALSE(HasRoom("10.0.0.1"));
  handshake_limiter_.Sweep(now_);
  handshake_limiter_.HasCalled("10.0.0.1:4001");
  EXPECT_TRUE(HasRoom("10.0.0.1"));
}

TEST_F(HandshakeLimiterTest, ClosesAHandshakeAfterTheTimeout) {
  const Pair first = Begin("10.0.0.1:4000");
  now_ += kPatience - absl::Milliseconds(1);
  const Pair second = Begin("10.0.0.1:4001");
  handshake_limiter_.Sweep(now_);
  EXPECT_FALSE(HasRoom("10.0.0.1"));
  now_ += absl::Milliseconds(1);
  handshake_limiter_.Sweep(now_);
  EXPECT_TRUE(HasRoom("10.0.0.1"));
  EXPECT_FALSE(handshake_limiter_.empty());
}

TEST_F(HandshakeLimiterTest, CountsIpv6AddressesByTheir64) {
  const Pair first = Begin("[fd77::1]:4000");
  const Pair second = Begin("[fd77::2:0:0:2]:4000");
  EXPECT_FALSE(HasRoom("[fd77::ffff:ffff:ffff:ffff]"));
  EXPECT_TRUE(HasRoom("[fd77:0:0:1::1]"));
  EXPECT_TRUE(HasRoom("10.0.0.1"));
  handshake_limiter_.HasCalled("[fd77::2:0:0:2]:4000");
  EXPECT_TRUE(HasRoom("[fd77::3]"));
}

TEST(NetworkOfAddressTest, IsTheAddressOfIpv4AndThe64OfIpv6) {
  EXPECT_EQ(NetworkOfAddress("10.0.0.2:4711"), "10.0.0.2");
  EXPECT_EQ(NetworkOfAddress("[fd77:1:2:3:4:5:6:7]:4711"), "[fd77:1:2:3::]/64");
  EXPECT_EQ(NetworkOfAddress("[fe80::1%eth0]:4711"), "[fe80::]/64");
  EXPECT_EQ(NetworkOfAddress("[::1]:4711"), "[::]/64");
}

// Tests with TCP connections, because the limiter closes some of them.
class FullHandshakeLimiterTest : public HandshakeLimiterTest {
 protected:
  struct Client {
    FileDescriptor socket;
    FileDescriptor server_side;
    std::string address;

    bool IsOpen() const { return ReadUntilEnd(socket, absl::ZeroDuration()).kind == TcpEnd::kOpen; }
  };
  Client Begin(const std::string& from) {
    Client client;
    client.socket = *ConnectTcp(listening_at_, from);
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    client.server_side =
        FileDescriptor(accept(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size));
    client.address = AddressText(peer, size);
    handshake_limiter_.Begin(client.server_side.get(), client.address, now_);
    return client;
  }

  std::string listening_at_;
  const FileDescriptor listener_ = *ListenOnLoopback(&listening_at_);
};

TEST_F(FullHandshakeLimiterTest, ClosesTheOldestHandshakeOver2SecondsForANewClient) {
  const Client newer = Begin("127.0.0.3");
  now_ -= absl::Milliseconds(1);
  const Client oldest = Begin("127.0.0.2");
  now_ += absl::Milliseconds(2);
  const Client newest = Begin("127.0.0.4");
  now_ += absl::Milliseconds(1997);
  EXPECT_FALSE(HasRoom("127.0.0.5")) << "the oldest handshake is 1.999 s old";
  EXPECT_TRUE(oldest.IsOpen());
  now_ += absl::Milliseconds(1);
  EXPECT_FALSE(HasRoom("127.0.0.4")) << "this client has a handshake in progress";
  EXPECT_TRUE(HasRoom("127.0.0.5"));
  EXPECT_FALSE(oldest.IsOpen());
  const Client fifth = Begin("127.0.0.5");
  EXPECT_FALSE(HasRoom("127.0.0.6")) << "the next handshake is 1.999 s old";
  EXPECT_TRUE(newer.IsOpen());
  EXPECT_TRUE(newest.IsOpen());
  EXPECT_TRUE(fifth.IsOpen());
}

TEST_F(FullHandshakeLimiterTest, ClosesHandshakesOfTheBusiestNetworkFirst) {
  const Client alone = Begin("127.0.0.2");
  const Client first = Begin("127.0.0.3");
  const Client second = Begin("127.0.0.3");
  now_ += absl::Seconds(5);
  EXPECT_FALSE(HasRoom("127.0.0.3")) << "a client cannot pass its own limit";
  EXPECT_TRUE(HasRoom("127.0.0.4"));
  EXPECT_TRUE(alone.IsOpen());
  EXPECT_NE(first.IsOpen(), second.IsOpen());
}

TEST_F(FullHandshakeLimiterTest, DoesNotCloseAnotherFileWithTheSameNumber) {
  Client first = Begin("127.0.0.2");
  const Client second = Begin("127.0.0.3");
  const Client third = Begin("127.0.0.4");
  // gRPC closes the socket, and its number goes to a connection that the limiter does not know.
  const FileDescriptor other = *ConnectTcp(listening_at_);
  FileDescriptor other_side(accept(listener_.get(), nullptr, nullptr));
  ASSERT_EQ(dup2(other_side.get(), first.server_side.get()), first.server_side.get());
  other_side.Close();
  now_ += absl::Seconds(3);
  EXPECT_TRUE(HasRoom("127.0.0.5"));
  EXPECT_EQ(ReadUntilEnd(other, absl::ZeroDuration()).kind, TcpEnd::kOpen);
}

}  // namespace
}  // namespace torchps
