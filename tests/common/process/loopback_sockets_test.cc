#include "common/process/loopback_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/testing/tcp.h"

namespace torchps {
namespace {

std::string CongestionControl(const FileDescriptor& socket) {
  char name[16] = {};
  socklen_t length = sizeof(name);
  EXPECT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
  return std::string(name, strnlen(name, sizeof(name)));
}

bool SetCongestionControl(const FileDescriptor& socket, const std::string& name) {
  return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), name.size()) == 0;
}

// A listener and both ends of a connection to it, all with "reno", which every kernel has.
class LoopbackSocketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listener = ListenOnLoopback(&address_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    if (!SetCongestionControl(listener_, "cubic")) GTEST_SKIP() << "this system has no cubic";
    if (!SetCongestionControl(listener_, "reno")) GTEST_SKIP() << "this system lets nobody choose";
    client_ = Connect();
    ASSERT_TRUE(SetCongestionControl(client_, "reno"));
    accepted_ = FileDescriptor(accept(listener_.get(), nullptr, nullptr));
    ASSERT_EQ(CongestionControl(accepted_), "reno");
    ASSERT_TRUE(absl::SimpleAtoi(address_.substr(address_.rfind(':') + 1), &port_));
  }

  FileDescriptor Connect() {
    auto connected = ConnectTcp(address_);
    EXPECT_TRUE(connected.ok()) << connected.status();
    return connected.ok() ? *std::move(connected) : FileDescriptor();
  }

  std::string address_;
  int port_ = 0;
  FileDescriptor listener_;
  FileDescriptor client_;
  FileDescriptor accepted_;
};

TEST_F(LoopbackSocketsTest, ChangesTheListenerAndBothEndsOfALocalConnection) {
  EXPECT_EQ(UseCubicOnLoopback(port_), 3);
  EXPECT_EQ(CongestionControl(listener_), "cubic");
  EXPECT_EQ(CongestionControl(client_), "cubic");
  EXPECT_EQ(CongestionControl(accepted_), "cubic");
}

TEST_F(LoopbackSocketsTest, ChangesNothingTwice) {
  UseCubicOnLoopback(port_);
  EXPECT_EQ(UseCubicOnLoopback(port_), 0);
}

TEST_F(LoopbackSocketsTest, WhatIsAcceptedLaterInheritsFromTheListener) {
  UseCubicOnLoopback(port_);
  const FileDescriptor client = Connect();
  const FileDescriptor accepted(accept(listener_.get(), nullptr, nullptr));
  EXPECT_EQ(CongestionControl(accepted), "cubic");
}

TEST_F(LoopbackSocketsTest, LeavesSocketsOfOtherPortsAlone) {
  std::string other;
  const auto listener = ListenOnLoopback(&other);
  ASSERT_TRUE(listener.ok()) << listener.status();
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(other.substr(other.rfind(':') + 1), &port));
  UseCubicOnLoopback(port);
  EXPECT_EQ(CongestionControl(client_), "reno");
  EXPECT_EQ(CongestionControl(accepted_), "reno");
}

TEST_F(LoopbackSocketsTest, LeavesAListenerOnAllAddressesAlone) {
  // Somebody from far away may connect to it and would inherit.
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  socklen_t length = sizeof(any);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &length), 0);
  ASSERT_TRUE(SetCongestionControl(listener, "reno"));
  EXPECT_EQ(UseCubicOnLoopback(ntohs(any.sin_port)), 0);
  EXPECT_EQ(CongestionControl(listener), "reno");
}

}  // namespace
}  // namespace torchps
