#include "torchps/tools/report/cluster_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"
#include "tests/tools/testing.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/security/credentials.h"
#include "torchps/tools/base/tcp.h"
#include "torchps/tools/drill/fault_proxy.h"

namespace torchps {
namespace {

// Server with fixed answers. Ends when a client calls Shutdown().
class TinyServer final : public ParameterService::Service, public Coordinator::Service {
 public:
  explicit TinyServer(const std::shared_ptr<grpc::ServerCredentials>& credentials =
                          grpc::InsecureServerCredentials()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterService(static_cast<ParameterService::Service*>(this));
    builder.RegisterService(static_cast<Coordinator::Service*>(this));
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
    ending_ = std::thread([this] {
      asked_to_end_.WaitForNotification();
      server_->Shutdown();
    });
  }
  ~TinyServer() override {
    if (!asked_to_end_.HasBeenNotified()) asked_to_end_.Notify();
    ending_.join();
  }

  grpc::Status GetServerStatus(grpc::ServerContext*, const ServerStatusRequest*,
                               ServerStatus* reply) override {
    reply->set_blocks(7);
    return grpc::Status::OK;
  }
  grpc::Status GetJobStatus(grpc::ServerContext*, const JobStatusRequest* request,
                            JobStatus* reply) override {
    if (!busy_with_.empty()) return {grpc::StatusCode::UNAVAILABLE, busy_with_};
    reply->set_phase(request->wait_until_done() ? JobStatus::DONE : JobStatus::RUNNING);
    return grpc::Status::OK;
  }
  grpc::Status Shutdown(grpc::ServerContext*, const ShutdownRequest* request,
                        ShutdownReply*) override {
    reason_ = request->reason();
    asked_to_end_.Notify();
    return grpc::Status::OK;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  const std::string& reason() const { return reason_; }
  // REQUIRES: no client has sent a request yet.
  void set_busy_with(const std::string& words) { busy_with_ = words; }

 private:
  int port_ = 0;
  std::string reason_;
  std::string busy_with_;
  absl::Notification asked_to_end_;
  std::unique_ptr<grpc::Server> server_;
  std::thread ending_;
};

// Owns a port that refuses connections. The socket is bound but never listens, so that another
// process cannot use the port, not even for an outgoing connection.
class DesertedAddress {
 public:
  DesertedAddress() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), length), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &length), 0);
  }
  ~DesertedAddress() { close(socket_); }
  DesertedAddress(const DesertedAddress&) = delete;
  DesertedAddress& operator=(const DesertedAddress&) = delete;

  std::string text() const { return absl::StrCat("127.0.0.1:", ntohs(address_.sin_port)); }

 private:
  const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address_ = {};
};

constexpr absl::Duration kTimeout = absl::Seconds(20);

TEST(ClusterClientTest, RequestsReachTheNamedServer) {
  const TinyServer first, second;
  const auto cluster = ConnectToCluster({first.address(), second.address()});
  EXPECT_EQ(cluster->GetServerStatus(1, kTimeout)->blocks(), 7u);
  EXPECT_EQ(cluster->GetJobStatus(false, kTimeout)->phase(), JobStatus::RUNNING);
  EXPECT_EQ(cluster->GetJobStatus(true, kTimeout)->phase(), JobStatus::DONE);
}

TEST(ClusterClientTest, UnreachableServerReportsTheSystemError) {
  const DesertedAddress nobody;
  const auto cluster = ConnectToCluster({nobody.text()});
  const absl::Status status = cluster->GetServerStatus(0, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "connection refused");
}

TEST(ClusterClientTest, QuotesTheServersErrorMessage) {
  TinyServer server;
  server.set_busy_with("another process is the coordinator in /Data: number 7; stop that one");
  const auto cluster = ConnectToCluster({server.address()});
  const absl::Status status = cluster->GetJobStatus(false, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "another process is the coordinator in /Data: number 7; stop that one");
}

TEST(ClusterClientTest, ShutdownWaitsForTheConnectionToClose) {
  const TinyServer server;
  const auto cluster = ConnectToCluster({server.address()});
  EXPECT_TRUE(cluster->Shutdown(0, "tests are over", kTimeout).ok());
  EXPECT_EQ(server.reason(), "tests are over");
  EXPECT_EQ(cluster->GetServerStatus(0, kTimeout).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ClusterClientTest, UnreachableServerDoesNotHideOtherServers) {
  const TinyServer server;
  const DesertedAddress nobody;
  const auto cluster = ConnectToCluster({server.address(), nobody.text()});
  const std::vector<ServerAnswer> answers = AskAllServers(*cluster, kTimeout);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(answers[0].status.ok());
  EXPECT_EQ(answers[1].status.status().code(), absl::StatusCode::kUnavailable);
}

TEST(ClusterClientTest, IdentifiesAnotherGrpcServer) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  // This service rejects each method explicitly. Without it, gRPC itself would reject unknown
  // methods, but ThreadSanitizer cannot see gRPC's synchronization there.
  ParameterService::Service other;
  builder.RegisterService(&other);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto cluster = ConnectToCluster({absl::StrCat("127.0.0.1:", port)});
  const absl::Status status = cluster->GetServerStatus(0, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "answers, but is not a torchps server");
}

TEST(ClusterClientTest, IdentifiesAWebServer) {
  std::string address;
  const FileDescriptor listener = *ListenOnLoopback(&address);
  std::thread web([&listener] {
    // The loop accepts gRPC's connection, and the connection that the client opens to identify the
    // server.
    for (int fd; (fd = accept(listener.get(), nullptr, nullptr)) >= 0; close(fd)) {
      char asked[1024];
      EXPECT_GT(recv(fd, asked, sizeof(asked), 0), 0);
      const std::string answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
      EXPECT_GT(send(fd, answer.data(), answer.size(), MSG_NOSIGNAL), 0);
    }
  });
  const absl::Status status = ConnectToCluster({address})->GetJobStatus(false, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "answers, but is not a torchps server");
  shutdown(listener.get(), SHUT_RDWR);
  web.join();
}

// A server with TLS, behind a proxy that resets connections after their first byte.
class ClusterClientTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FaultProxy::Options options;
    options.target = server_.address();
    options.cut_within_bytes = 1;
    auto proxy = FaultProxy::Start(std::move(options));
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
  }

  const TestCertificates made_;
  const TinyServer server_{TlsServerCredentials(made_.Open(Role::kServer), IgnoreLine)};
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(ClusterClientTlsTest, RetriesAfterTlsHandshakesThatTheServerClosed) {
  const auto cluster =
      ConnectToCluster({proxy_->address()}, made_.Open(Role::kOperator), absl::Hours(1));
  // The first call, and the two connections that look for its error, have failed by then.
  std::thread healer([this] {
    EXPECT_TRUE(Eventually([this] { return proxy_->resets() >= 3; }));
    proxy_->Heal();
  });
  const absl::StatusOr<ServerStatus> status = cluster->GetServerStatus(0, kTimeout);
  healer.join();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->blocks(), 7u);
}

TEST_F(ClusterClientTlsTest, GivesUpWithASentenceIfNoTlsHandshakeFinishes) {
  const auto cluster =
      ConnectToCluster({proxy_->address()}, made_.Open(Role::kOperator), absl::Milliseconds(100));
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = cluster->GetJobStatus(false, kTimeout).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.message(),
              "no TLS handshake finished in time; the server is overloaded, clients hold too "
              "many unfinished handshakes, or this is no torchps server");
  }
}

TEST_F(ClusterClientTlsTest, DoesNotTakeAClosedTlsHandshakeForAnotherProtocol) {
  std::string address;
  const FileDescriptor listener = *ListenOnLoopback(&address);
  std::thread server([&listener] {
    for (int fd; (fd = accept(listener.get(), nullptr, nullptr)) >= 0; close(fd)) {
      char hello[4096];
      EXPECT_GT(recv(fd, hello, sizeof(hello), 0), 0);
    }
  });
  const auto cluster = ConnectToCluster({address}, made_.Open(Role::kOperator));
  EXPECT_EQ(cluster->GetServerStatus(0, kTimeout).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  shutdown(listener.get(), SHUT_RDWR);
  server.join();
}

// With the patience of an hour, a retry would exceed the test's timeout.
TEST_F(ClusterClientTlsTest, DoesNotRetryACertificateErrorOrARefusedConnection) {
  const TestCertificates other;
  const auto stranger =
      ConnectToCluster({server_.address()}, other.Open(Role::kOperator), absl::Hours(1));
  EXPECT_EQ(stranger->GetServerStatus(0, kTimeout).status().code(),
            absl::StatusCode::kUnauthenticated);
  const DesertedAddress nobody;
  const auto cluster =
      ConnectToCluster({nobody.text()}, made_.Open(Role::kOperator), absl::Hours(1));
  const absl::Status status = cluster->GetServerStatus(0, kTimeout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "connection refused");
}

TEST(ParseAddressesTest, SplitsAList) {
  EXPECT_EQ(*ParseAddresses("a:1,[::1]:2"), (std::vector<std::string>{"a:1", "[::1]:2"}));
}

TEST(ParseAddressesTest, RejectsAMalformedAddressByName) {
  for (const char* text : {"", "a", ":1", "a:", "a:0", "a:65536", "a:http"}) {
    const absl::Status status = ParseAddresses(std::string("b:1,") + text).status();
    EXPECT_EQ(status.message(),
              std::string("--servers: '") + text + "' is neither HOST:PORT nor file:PATH");
  }
}

}  // namespace
}  // namespace torchps
