// Tests when the connection filter admits a TLS handshake and how many file descriptors it keeps
// free.

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fault/connection_filter_rig.h"
#include "tests/testing/eventually.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

// The filter keeps a connection with an incomplete record, even if other connections arrive.
TEST_F(ConnectionFilterTest, AdmitsTlsAfterTheFirstWholeRecord) {
  ConnectionFilter::Options options;
  options.tls = true;
  Open(std::move(options));
  const std::string record = GetRecord(300);
  std::vector<FileDescriptor> half;
  for (size_t size : {2, 4, 5, 54, 304}) half.push_back(Visit(record.substr(0, size)));
  const FileDescriptor whole = Visit(record);
  ASSERT_TRUE(Eventually([&] { return admitted() == 1; }));
  for (const FileDescriptor& visitor : half) {
    EXPECT_EQ(ReadUntilEnd(visitor, absl::ZeroDuration()).kind, TcpEnd::kOpen);
  }
  EXPECT_EQ(admitted(), 1);
  ASSERT_TRUE(WriteAll(half.back(), record.substr(304)).ok());
  EXPECT_TRUE(Eventually([&] { return admitted() == 2; }));
}

TEST_F(ConnectionFilterTest, LimitsTheHandshakesOfEachNetwork) {
  ConnectionFilter::Options options;
  options.tls = true;
  options.patience = absl::Hours(1);
  options.handshake_limiter.most = 4;
  options.handshake_limiter.max_of_a_network = 2;
  options.handshake_limiter.patience = absl::Hours(1);
  Open(std::move(options));
  const std::string record = GetRecord(300);
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < 10; ++i) crowd.push_back(Visit(record, "127.0.0.2"));
  ASSERT_TRUE(Eventually([&] { return admitted() == 2; }));
  // Connects from another host, after the ten connections of 127.0.0.2.
  const FileDescriptor other = Visit(record);
  ASSERT_TRUE(Eventually([&] { return admitted() == 3; }));
  EXPECT_EQ(GetPeer(2), GetAddress(other));
  // A handshake ends when the peer makes a call, or when gRPC or the client closes the connection.
  filter_->handshake_limiter().HasCalled(GetPeer(0));
  ASSERT_TRUE(Eventually([&] { return admitted() == 4; }));
  EXPECT_EQ(GetPeer(3), GetAddress(crowd[2]));
  crowd[3].Close();
  CloseAdmitted(1);
  ASSERT_TRUE(Eventually([&] { return admitted() == 5; }));
  EXPECT_EQ(GetPeer(4), GetAddress(crowd[4]));
}

// A new client passes the waiting clients of busy networks, and replaces a handshake that is 2 s
// old.
TEST_F(ConnectionFilterTest, ANewClientIsAdmittedBeforeACrowd) {
  ConnectionFilter::Options options;
  options.tls = true;
  options.clock = &manual_clock_;
  options.handshake_limiter.most = 4;
  options.handshake_limiter.max_of_a_network = 2;
  Open(std::move(options));
  const std::string record = GetRecord(300);
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < 10; ++i)
    crowd.push_back(Visit(record, i % 2 == 0 ? "127.0.0.2" : "127.0.0.3"));
  ASSERT_TRUE(Eventually([&] { return admitted() == 4; }));
  // The filter reads connections in order. When it answers the browser, the new client waits.
  const auto wait = [&](const std::string& from) {
    FileDescriptor client = Visit(record, from);
    EXPECT_NE(ReadUntilEnd(Visit("GET / HTTP/1.1\r\n\r\n"), kPatience).bytes, "");
    return client;
  };
  const FileDescriptor early = wait("127.0.0.4");
  EXPECT_EQ(admitted(), 4);
  filter_->handshake_limiter().HasCalled(GetPeer(0));
  ASSERT_TRUE(Eventually([&] { return admitted() >= 5; }));
  EXPECT_EQ(GetPeer(4), GetAddress(early));

  const FileDescriptor late = wait("127.0.0.5");
  EXPECT_EQ(admitted(), 5);
  manual_clock_.Advance(absl::Seconds(2));
  ASSERT_TRUE(Eventually([&] { return admitted() >= 6; }));
  EXPECT_EQ(GetPeer(5), GetAddress(late));
}

TEST_F(ConnectionFilterTest, CountsAnIpv4ClientOfAnIpv6ListenerByItsIpv4Address) {
  // This file lists the machine's IPv6 addresses.
  if (std::ifstream("/proc/net/if_inet6").peek() == EOF) GTEST_SKIP() << "no IPv6";
  ConnectionFilter::Options options;
  options.host = "[::]";
  options.tls = true;
  options.handshake_limiter.max_of_a_network = 1;
  Open(std::move(options));
  const FileDescriptor first = Visit(GetRecord(300), "127.0.0.2");
  const FileDescriptor second = Visit(GetRecord(300), "127.0.0.3");
  EXPECT_TRUE(Eventually([&] { return admitted() == 2; }));
}

// The filter's thread polls the event. If the event stayed set without handshakes, the thread would
// spin.
TEST_F(ConnectionFilterTest, TheHandshakeEventIsClearedAfterTheLastHandshake) {
  ConnectionFilter::Options options;
  options.tls = true;
  Open(std::move(options));
  const FileDescriptor only = Visit(GetRecord(300));
  ASSERT_TRUE(Eventually([&] { return admitted() == 1; }));
  HandshakeLimiter& handshake_limiter = filter_->handshake_limiter();
  ASSERT_FALSE(handshake_limiter.empty());
  handshake_limiter.HasCalled(GetPeer(0));
  ASSERT_TRUE(handshake_limiter.empty());
  EXPECT_TRUE(Eventually([&] {
    pollfd event{handshake_limiter.event_fd(), POLLIN, 0};
    return poll(&event, 1, /*timeout=*/0) == 0;
  }));
}

TEST_F(ConnectionFilterTest, LogsWhyAHandshakeDidNotStart) {
  ConnectionFilter::Options options;
  options.tls = true;
  options.patience = absl::Milliseconds(50);
  options.handshake_limiter.most = 1;
  options.handshake_limiter.patience = absl::Hours(1);
  Open(std::move(options));
  const FileDescriptor first = Visit(GetRecord(300));
  ASSERT_TRUE(Eventually([&] { return admitted() == 1; }));
  const FileDescriptor second = Visit(GetRecord(300));
  EXPECT_NE(ReadUntilEnd(second, kPatience).kind, TcpEnd::kOpen);
  EXPECT_TRUE(Eventually(
      [&] { return Logged("has waited too long for its TLS handshake; the limit is 1"); }));
}

// The server needs file descriptors, regardless of the number of connections.
TEST_F(ConnectionFilterTest, LeavesTheReservedFileDescriptorsFree) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  ConnectionFilter::Options options;
  options.patience = absl::Hours(1);
  options.reserved_files = 40;
  Open(std::move(options));
  // Both ends are in this process, so open the clients' descriptors before lowering the limit.
  constexpr int kVisitors = 100;
  std::vector<FileDescriptor> visitors;
  for (int i = 0; i < kVisitors; ++i) {
    visitors.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  rlimit lowered = limit;
  lowered.rlim_cur = visitors.back().get() + 60;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(filter_->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const FileDescriptor& visitor : visitors) {
    ASSERT_EQ(connect(visitor.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  EXPECT_TRUE(
      Eventually([&] { return Logged("does not accept connections while fewer than 40"); }));
  std::vector<FileDescriptor> files;
  for (int i = 0; i < 38; ++i) {
    files.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_GE(files.back().get(), 0) << "file " << i;
  }
  // The filter accepts connections again after the clients disconnect.
  files.clear();
  visitors.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const FileDescriptor worker = Visit(kPreface);
  EXPECT_TRUE(Eventually([&] { return admitted() == 1; }));
}

}  // namespace
}  // namespace torchps
