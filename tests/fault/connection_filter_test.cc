// Tests a server's port with peers that are not workers: half a handshake, silence, browsers,
// random bytes, other users of the machine, and thousands of connections. The server refuses them
// with a message, at little cost, and serves workers without delay.

#include "torchps/server/rpc/connection_filter.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/connection_filter_rig.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/common/mutex.h"
#include "torchps/security/local_peer.h"
#include "torchps/security/protocol_sniffer.h"
#include "torchps/server/server.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

// Sniffs each prefix of the first bytes of each protocol.
TEST(ProtocolSnifferTest, DetectsTheProtocolFromTheFewestBytes) {
  struct Case {
    std::string bytes;
    size_t decided_after;
    Protocol opening;
  };
  const std::vector<Case> cases = {
      {std::string(kPreface), 24, Protocol::kHttp2},
      {std::string("\x16\x03\x01\x02\x00\x01", 6), 2, Protocol::kTls},
      {std::string("\x15\x03\x03\x00\x02\x02\x30", 7), 7, Protocol::kTlsAlert},
      {"GET / HTTP/1.1\r\n", 4, Protocol::kHttp1},
      {"POST /x", 5, Protocol::kHttp1},
      {"OPTIONS *", 8, Protocol::kHttp1},
      {"PRI * HTTP/1.1", 12, Protocol::kOther},
      {std::string("\x16\x02", 2), 2, Protocol::kOther},
      {std::string("\0", 1), 1, Protocol::kOther},
      {"SSH-2.0-", 1, Protocol::kOther},
      {"GEX", 3, Protocol::kOther},
  };
  for (const Case& c : cases) {
    for (size_t size = 0; size <= c.bytes.size(); ++size) {
      const Protocol expected = size < c.decided_after ? Protocol::kUndecided : c.opening;
      EXPECT_EQ(static_cast<int>(SniffProtocol(c.bytes.substr(0, size))),
                static_cast<int>(expected))
          << c.bytes << ", " << size << " bytes";
    }
  }
}

TEST(ProtocolSnifferTest, ReadsTheLengthOfATlsRecord) {
  const std::string record("\x16\x03\x01\x02\x07\x01", 6);
  EXPECT_EQ(TlsRecordBytes(record.substr(0, 4)), std::nullopt);
  EXPECT_EQ(TlsRecordBytes(record.substr(0, 5)), 5 + 0x207);
  EXPECT_EQ(TlsRecordBytes(record), 5 + 0x207);
  EXPECT_EQ(TlsRecordBytes("\x16\x03\x01\xff\xff"), 5 + 0xffff);
}

TEST(ProtocolSnifferTest, ParsesOnlyCompleteGoAwayFrames) {
  const std::string frame = GoAwayFrame("no\r\nthanks");
  EXPECT_EQ(ParseGoAwayFrame(frame), "no  thanks");
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_EQ(ParseGoAwayFrame(frame.substr(0, size)), std::nullopt) << size;
  }
  EXPECT_EQ(ParseGoAwayFrame(GoAwayFrame(std::string(100000, 'x')))->size(), 512);
  uint64_t random = 7;
  for (int i = 0; i < 10000; ++i) {
    std::string noise = frame;
    noise[SplitMix64(random) % noise.size()] = static_cast<char>(SplitMix64(random));
    const auto parsed = ParseGoAwayFrame(noise);
    EXPECT_TRUE(!parsed.has_value() || parsed->size() <= 512);
  }
}

TEST_F(ConnectionFilterTest, AdmitsHttp2AndLeavesAllBytesUnread) {
  Open();
  const FileDescriptor whole = Visit(kPreface);
  EXPECT_TRUE(Eventually([&] { return admitted() == 1; }));
  const FileDescriptor in_pieces = Visit(kPreface.substr(0, 5));
  ASSERT_TRUE(WriteAll(in_pieces, kPreface.substr(5)).ok());
  EXPECT_TRUE(Eventually([&] { return admitted() == 2; }));
  MutexLock lock(&mutex_);
  for (const FileDescriptor& connection : admitted_) {
    char bytes[64];
    EXPECT_EQ(recv(connection.get(), bytes, sizeof(bytes), 0), 24);
  }
  EXPECT_TRUE(logged_.empty());
}

TEST_F(ConnectionFilterTest, AnswersABrowserWithHttp400) {
  Open();
  const FileDescriptor browser = Visit("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const TcpEnd end = ReadUntilEnd(browser, kPatience);
  EXPECT_EQ(end.kind, TcpEnd::kClosed);
  EXPECT_THAT(end.bytes, HasSubstr("HTTP/1.1 400"));
  EXPECT_THAT(end.bytes, HasSubstr("this is a torchps server"));
  EXPECT_TRUE(Eventually([&] { return Logged("127.0.0.1: it speaks HTTP/1"); }));
  EXPECT_EQ(admitted(), 0);
}

TEST_F(ConnectionFilterTest, ClosesConnectionsThatSendRandomBytes) {
  Open();
  uint64_t random = 20;
  for (int i = 0; i < 200; ++i) {
    std::string noise(1 + SplitMix64(random) % 200, '\0');
    for (char& c : noise) c = static_cast<char>(SplitMix64(random));
    noise[0] |= '\x80';  // an invalid first byte in all protocols
    const FileDescriptor visitor = Visit(noise);
    EXPECT_NE(ReadUntilEnd(visitor, kPatience).kind, TcpEnd::kOpen) << i;
  }
  EXPECT_EQ(admitted(), 0);
  MutexLock lock(&mutex_);
  EXPECT_LE(logged_.size(), 2) << "one sentence for all of them";
}

// The filter closes a connection that sends nothing, or only a part of the first bytes, until the
// timeout.
TEST_F(ConnectionFilterTest, ClosesSilentAndIncompleteConnectionsAfterTheTimeout) {
  ConnectionFilter::Options options;
  options.patience = absl::Milliseconds(50);
  Open(std::move(options));
  const FileDescriptor silent = Visit("");
  const FileDescriptor slow = Visit("P");
  EXPECT_NE(ReadUntilEnd(silent, kPatience).kind, TcpEnd::kOpen);
  EXPECT_NE(ReadUntilEnd(slow, kPatience).kind, TcpEnd::kOpen);
  EXPECT_TRUE(Eventually([&] { return Logged("has not sent a recognizable request in time"); }));
}

TEST_F(ConnectionFilterTest, ClosesTheOldestConnectionAboveTheLimit) {
  ConnectionFilter::Options options;
  options.max_waiting = 10;
  options.patience = absl::Hours(1);
  Open(std::move(options));
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(Visit(""));
  EXPECT_NE(ReadUntilEnd(silent.front(), kPatience).kind, TcpEnd::kOpen);
  EXPECT_TRUE(Eventually([&] { return Logged("more than 10 are open"); }));
  const FileDescriptor worker = Visit(kPreface);
  EXPECT_TRUE(Eventually([&] { return admitted() == 1; }));
  EXPECT_EQ(ReadUntilEnd(silent.back(), absl::ZeroDuration()).kind, TcpEnd::kOpen);
}

TEST_F(ConnectionFilterTest, RefusesAPortThatIsInUse) {
  Open();
  ConnectionFilter::Options second;
  second.port = filter_->port();
  second.clock = &clock_;
  const auto filter = ConnectionFilter::Create(std::move(second));
  EXPECT_EQ(filter.status().code(), absl::StatusCode::kAlreadyExists) << filter.status();
  ConnectionFilter::Options nowhere;
  nowhere.host = "192.0.2.1";  // set aside for documentation (RFC 5737)
  nowhere.clock = &clock_;
  EXPECT_EQ(ConnectionFilter::Create(std::move(nowhere)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ConnectionFilterTest, FindsTheUserThatOwnsAConnection) {
  Open();
  const FileDescriptor own = Visit(kPreface);
  ASSERT_TRUE(Eventually([&] { return admitted() == 1; }));
  MutexLock lock(&mutex_);
  const auto owner = OwnerOfPeer(admitted_[0].get());
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ(*owner, geteuid());
}

// On loopback, any user of the machine can connect. With `own_user_only` the filter must refuse
// users other than the server's. The test must run as root to change its user.
TEST_F(ConnectionFilterTest, AdmitsOnlyTheServersUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change the user";
  ConnectionFilter::Options options;
  options.own_user_only = true;
  Open(std::move(options));
  const FileDescriptor own = Visit(kPreface);
  EXPECT_TRUE(Eventually([&] { return admitted() == 1; }));
  // Sockets belong to the effective user of the process that created them.
  if (seteuid(65534) != 0) GTEST_SKIP() << "this sandbox contains only one user";
  const FileDescriptor unauthenticated = Visit("");
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(WriteAll(unauthenticated, kPreface).ok());
  const TcpEnd end = ReadUntilEnd(unauthenticated, kPatience);
  const auto reason = ParseGoAwayFrame(end.bytes);
  ASSERT_TRUE(reason.has_value());
  EXPECT_THAT(*reason, HasSubstr("belongs to user 65534"));
  EXPECT_THAT(*reason, HasSubstr("--certs=DIR"));
  EXPECT_TRUE(Eventually([&] { return Logged("belongs to user 65534"); }));
  EXPECT_EQ(admitted(), 1);
}

// Peers that send everything and close before the check must not count as root.
TEST_F(ConnectionFilterTest, DoesNotTakeAClosedPeerForRoot) {
  ConnectionFilter::Options options;
  options.own_user_only = true;
  Open(std::move(options));
  for (int i = 0; i < 50; ++i) {
    FileDescriptor hasty = Visit(kPreface);
    hasty.Close();
  }
  // The loop above is a race, so also ask directly for the owner of a closed socket.
  const auto pair = [&] {
    FileDescriptor here = Visit(kPreface);
    EXPECT_TRUE(Eventually([&] { return admitted() > 0; }));
    return here;
  };
  FileDescriptor here = pair();
  FileDescriptor there;
  {
    MutexLock lock(&mutex_);
    there = std::move(admitted_.back());
  }
  here.Close();
  EXPECT_TRUE(Eventually([&] { return !OwnerOfPeer(there.get()).ok(); }))
      << "a closed socket must not have an owner";
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Opens 5,000 idle connections to a server (300 with a sanitizer), with and without TLS, while a
// worker trains.
class ManyConnectionsTest : public ::testing::TestWithParam<bool> {};

TEST_P(ManyConnectionsTest, IdleConnectionsTakeLittleMemoryAndWorkersAreStillServed) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
#if defined(TORCHPS_TSAN) || defined(TORCHPS_ASAN)
  const int wanted = 300;
#else
  const int wanted = 5000;
#endif
  const int count = std::min<int>(wanted, static_cast<int>(limit.rlim_cur) / 2 - 200);
  const TestCertificates made;
  SteadyClock clock;
  Server::Options options;
  options.clock = &clock;
  options.log = [](const std::string&) {};
  std::shared_ptr<CertificateFiles> certificates;
  if (GetParam()) {
    options.certificates = made.Open(Role::kServer);
    certificates = made.Open(Role::kWorker);
  }
  auto server = Server::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  JobHarness::Options model;
  model.trained = 48;
  model.job = "consistency { staleness_bound: -1 }";
  HelloRequest hello = JobHarness::Hello(model);
  hello.set_incarnation(1);
  PlainWorker worker(PlainChannel((*server)->address(), certificates), hello);
  ASSERT_TRUE(worker.Hello().ok());
  ASSERT_TRUE(worker.Initialize(0.0f).ok());

  const int64_t before = ResidentBytes();
  std::vector<FileDescriptor> idle;
  Step step = 0;
  for (int i = 0; i < count; ++i) {
    auto socket = ConnectTcp((*server)->address());
    ASSERT_TRUE(socket.ok()) << i << ": " << socket.status();
    // Half of the connections begin a handshake.
    if (i % 2 == 1) {
      WriteAll(*socket, GetParam() ? absl::string_view("\x16\x03\x01", 3) : kPreface).IgnoreError();
    }
    idle.push_back(*std::move(socket));
    if (i % 500 == 0) {
      ASSERT_TRUE(worker.Pull(step).ok());
      ASSERT_TRUE(worker.Push(++step, 1.0f).ok());
    }
  }
  const int64_t grown = ResidentBytes() - before;
  const absl::Duration began = clock.Now();
  PlainWorker late(PlainChannel((*server)->address(), certificates), hello);
  EXPECT_TRUE(late.Hello().ok()) << "the server does not accept a new connection";
  std::printf("%d connections: %.1f MB more, a new worker is greeted in %s\n", count,
              static_cast<double>(grown) / 1e6, absl::FormatDuration(clock.Now() - began).c_str());
  EXPECT_LT(grown, int64_t{400} << 20);
  EXPECT_TRUE(worker.Push(++step, 1.0f).ok());
  const auto status = worker.Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->max_version(), step) << "each push was applied once";
}

INSTANTIATE_TEST_SUITE_P(PlainAndTls, ManyConnectionsTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& with_tls) {
                           return with_tls.param ? "Tls" : "Plain";
                         });

}  // namespace
}  // namespace torchps
