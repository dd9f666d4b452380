#include "server/rpc/handshake_limiter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

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

  static HandshakeLimiter::Limits ThreeInAllTwoOfAHost() {
    HandshakeLimiter::Limits limits;
    limits.most = 3;
    limits.max_of_a_host = 2;
    limits.patience = kPatience;
    return limits;
  }

  Pair Begin(const std::string& address) {
    Pair pair = Connect();
    handshake_limiter_.Begin(pair.here.get(), address, now_);
    return pair;
  }
  // Returns true if the limiter signals an ended handshake.
  bool Tells() const {
    pollfd ready{handshake_limiter_.event_fd(), POLLIN, 0};
    return poll(&ready, 1, /*timeout=*/0) == 1;
  }

  absl::Duration now_ = absl::Hours(1);
  HandshakeLimiter handshake_limiter_{ThreeInAllTwoOfAHost()};
};

TEST_F(HandshakeLimiterTest, LimitsHandshakesPerHostAndInTotal) {
  EXPECT_TRUE(handshake_limiter_.empty());
  const Pair first = Begin("10.0.0.1:4000");
  EXPECT_FALSE(handshake_limiter_.empty());
  EXPECT_TRUE(handshake_limiter_.HasRoom("10.0.0.1"));
  const Pair second = Begin("10.0.0.1:4001");
  EXPECT_FALSE(handshake_limiter_.HasRoom("10.0.0.1"));
  EXPECT_TRUE(handshake_limiter_.HasRoom("10.0.0.2"));
  const Pair third = Begin("[::1]:4000");
  EXPECT_FALSE(handshake_limiter_.HasRoom("10.0.0.2"));
  handshake_limiter_.Sweep(now_);
  EXPECT_FALSE(handshake_limiter_.HasRoom("10.0.0.2")) << "all three handshakes are active";
}

TEST_F(HandshakeLimiterTest, ACallEndsItsHandshakeAndSignals) {
  const Pair first = Begin("10.0.0.1:4000");
  const Pair second = Begin("10.0.0.1:4001");
  handshake_limiter_.HasCalled("10.0.0.1:4002");
  EXPECT_FALSE(handshake_limiter_.HasRoom("10.0.0.1"));
  EXPECT_FALSE(Tells());
  handshake_limiter_.HasCalled("10.0.0.1:4001");
  EXPECT_TRUE(handshake_limiter_.HasRoom("10.0.0.1"));
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
  EXPECT_TRUE(handshake_limiter_.HasRoom("10.0.0.1"));
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
  EXPECT_FALSE(handshake_limiter_.HasRoom("10.0.0.1")) << "two handshakes, not three";
  handshake_limiter_.HasCalled("10.0.0.1:4000");
  EXPECT_FALSE(handshake_limiter_.HasRoom("10.0.0.1"));
  handshake_limiter_.Sweep(now_);
  handshake_limiter_.HasCalled("10.0.0.1:4001");
  EXPECT_TRUE(handshake_limiter_.HasRoom("10.0.0.1"));
}

TEST_F(HandshakeLimiterTest, ClosesAHandshakeAfterTheTimeout) {
  const Pair first = Begin("10.0.0.1:4000");
  now_ += kPatience - absl::Milliseconds(1);
  const Pair second = Begin("10.0.0.1:4001");
  handshake_limiter_.Sweep(now_);
  EXPECT_FALSE(handshake_limiter_.HasRoom("10.0.0.1"));
  now_ += absl::Milliseconds(1);
  handshake_limiter_.Sweep(now_);
  EXPECT_TRUE(handshake_limiter_.HasRoom("10.0.0.1"));
  EXPECT_FALSE(handshake_limiter_.empty());
}

}  // namespace
}  // namespace torchps
