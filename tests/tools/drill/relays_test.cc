#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/tools/base/tcp.h"
#include "torchps/tools/drill/fault_proxy.h"

namespace torchps {
namespace {

constexpr absl::Duration kRelayPatience = absl::Seconds(20);
constexpr absl::Duration kRelaySilence = absl::Milliseconds(50);

// Connects workers to two listening sockets through relays.
class RelaysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int server = 0; server < 2; ++server) {
      std::string address;
      auto listener = ListenOnLoopback(&address);
      ASSERT_TRUE(listener.ok()) << listener.status();
      listeners_.push_back(*std::move(listener));
      addresses_.push_back(address);
    }
    for (int worker = 0; worker < 2; ++worker) {
      const auto relays = relays_.Open(worker, addresses_);
      ASSERT_TRUE(relays.ok()) << relays.status();
      ways_.push_back(*relays);
      for (int server = 0; server < 2; ++server) {
        auto near = ConnectTcp(GetRelay(*relays, addresses_[server]));
        ASSERT_TRUE(near.ok()) << near.status();
        near_.push_back(*std::move(near));
        far_.emplace_back(accept(listeners_[server].get(), nullptr, nullptr));
      }
    }
  }

  // Sends a byte from `worker` to `server` and returns the bytes that arrive.
  std::string Arrives(int worker, int server, absl::Duration patience) {
    const size_t way = static_cast<size_t>(2 * worker + server);
    EXPECT_TRUE(WriteAll(near_[way], "x").ok());
    return ReadUntilEnd(far_[way], patience, 1).bytes;
  }

  Relays relays_;
  std::vector<FileDescriptor> listeners_;
  std::vector<std::string> addresses_;
  std::vector<std::string> ways_;
  std::vector<FileDescriptor> near_;
  std::vector<FileDescriptor> far_;
};

TEST_F(RelaysTest, ALinkStaysCutUntilEachCutHasEnded) {
  relays_.Cut({{0, 1}});
  relays_.Cut({{0, 1}, {1, 1}});
  EXPECT_EQ(Arrives(0, 0, kRelayPatience), "x");
  EXPECT_EQ(Arrives(1, 0, kRelayPatience), "x");
  EXPECT_EQ(Arrives(0, 1, kRelaySilence), "");
  EXPECT_EQ(Arrives(1, 1, kRelaySilence), "");
  relays_.Join({{0, 1}, {1, 1}});
  EXPECT_EQ(ReadUntilEnd(far_[3], kRelayPatience, 1).bytes, "x") << "nothing was lost";
  EXPECT_EQ(ReadUntilEnd(far_[1], kRelaySilence, 1).bytes, "") << "the other cut lasts";
  relays_.Join({{0, 1}});
  EXPECT_EQ(ReadUntilEnd(far_[1], kRelayPatience, 1).bytes, "x");
}

TEST_F(RelaysTest, ResetBreaksOnlyTheLinksConnections) {
  relays_.Reset({{1, 0}});
  EXPECT_EQ(ReadUntilEnd(near_[2], kRelayPatience).kind, TcpEnd::kReset);
  EXPECT_EQ(ReadUntilEnd(far_[2], kRelayPatience).kind, TcpEnd::kReset);
  EXPECT_EQ(Arrives(1, 1, kRelayPatience), "x");
}

TEST_F(RelaysTest, ARestartedWorkerGetsTheSameRelays) {
  EXPECT_EQ(*relays_.Open(1, addresses_), ways_[1]);
  EXPECT_NE(ways_[0], ways_[1]);
}

TEST(GetRelay, ServerWithoutRelayIsReachedDirectly) {
  EXPECT_EQ(GetRelay("a:1=r:5,b:2=r:6", "b:2"), "r:6");
  EXPECT_EQ(GetRelay("a:1=r:5,b:2=r:6", "c:3"), "c:3");
  EXPECT_EQ(GetRelay("", "c:3"), "c:3");
  EXPECT_EQ(GetRelay("c:3,c:3=", "c:3"), "c:3");
}

}  // namespace
}  // namespace torchps
