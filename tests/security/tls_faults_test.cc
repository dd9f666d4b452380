// Tests which connections a server accepts and which servers a worker trusts. Each fault of TLS or
// a certificate must be refused and named on both sides within a second. Calls beyond a
// certificate's role must be refused one by one.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "openssl/pem.h"
#include "openssl/ssl.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/client/calls/retry_deadline.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/security/credentials.h"
#include "torchps/server/server.h"
#include "torchps/tools/base/tcp.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

#if defined(TORCHPS_TSAN) || defined(TORCHPS_ASAN)
constexpr absl::Duration kOneSecond = absl::Seconds(10);
#else
constexpr absl::Duration kOneSecond = absl::Seconds(1);
#endif

// Collects a server's log lines. Shared, because gRPC may keep the callback longer than the server.
class Words {
 public:
  std::function<void(const std::string&)> Listener() {
    return [state = state_](const std::string& line) {
      MutexLock lock(&state->mutex);
      state->lines.push_back(line);
    };
  }
  bool Contain(const std::string& words) const {
    MutexLock lock(&state_->mutex);
    return std::any_of(state_->lines.begin(), state_->lines.end(),
                       [&](const std::string& line) { return absl::StrContains(line, words); });
  }
  std::string All() const {
    MutexLock lock(&state_->mutex);
    std::string all;
    for (const std::string& line : state_->lines) absl::StrAppend(&all, line, "\n");
    return all;
  }

 private:
  struct State {
    Mutex mutex;
    std::vector<std::string> lines ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

HelloRequest GetHello(SlotId slot) {
  JobHarness::Options model;
  model.trained = 48;
  model.job = "consistency { staleness_bound: -1 } membership { lease_seconds: 600 } workers: 2";
  HelloRequest hello = JobHarness::Hello(model);
  hello.set_slot(slot);
  hello.set_incarnation(5);
  return hello;
}

class TlsTest : public ::testing::Test {
 protected:
  // Starts a server. Without certificates it does not use TLS.
  std::unique_ptr<Server> Start(std::shared_ptr<CertificateFiles> certificates, Words* words,
                                const std::string& listen = "127.0.0.1:0") {
    Server::Options options;
    options.listen = listen;
    options.clock = &clock_;
    options.log = words->Listener();
    options.certificates = std::move(certificates);
    auto server = Server::Start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }

  // Calls Hello like a real worker, with retries. Returns the final status.
  absl::Status Greet(const std::string& address, std::shared_ptr<CertificateFiles> certificates) {
    const ServerEndpoint endpoint = ConnectToServer(0, address, std::move(certificates));
    RetryDeadline::Options patience;
    patience.clock = &clock_;
    RetryDeadline patient(endpoint, patience);
    PlainWorker worker(endpoint.channel, GetHello(0));
    while (true) {
      const absl::Status status = worker.Hello();
      if (!RetryDeadline::MayRetry(status)) return status;
      const auto wait = patient.Failed(status);
      if (!wait.ok()) return wait.status();
      absl::SleepFor(*wait);
    }
  }

  SteadyClock clock_;
  const TestCertificates made_;
};

// Opens the certificates in a directory, on a clock that is `behind` the real time. With it,
// expired certificates can be opened.
absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenBehind(
    const std::string& directory, Role role, absl::Duration behind = absl::ZeroDuration()) {
  CertificateFiles::Options options;
  options.directory = directory;
  options.role = role;
  options.now = [behind] { return absl::Now() - behind; };
  return CertificateFiles::Open(std::move(options));
}

TEST_F(TlsTest, ConnectsByEachFormOfAddress) {
  Words words;
  const std::vector<std::string> hosts = {"127.0.0.1", "localhost", "::1"};
  const auto certificates = OpenFiles(made_.Make(Role::kServer, "any", hosts), Role::kServer);
  const auto worker = made_.Open(Role::kWorker);
  const auto server = Start(certificates, &words);
  ASSERT_NE(server, nullptr);
  const std::string port = server->address().substr(server->address().rfind(':'));
  EXPECT_EQ(Greet(server->address(), worker), absl::OkStatus());
  EXPECT_EQ(Greet(absl::StrCat("localhost", port), worker), absl::OkStatus());

  // This file lists the machine's IPv6 addresses. Without any, the rest of the test cannot run.
  if (std::ifstream("/proc/net/if_inet6").peek() == EOF) return;
  const auto server6 = Start(certificates, &words, "[::1]:0");
  ASSERT_NE(server6, nullptr);
  EXPECT_EQ(Greet(server6->address(), worker), absl::OkStatus());
}

TEST_F(TlsTest, TrainsWithGoodCertificates) {
  Words words;
  const auto server = Start(made_.Open(Role::kServer), &words);
  ASSERT_NE(server, nullptr);
  PlainWorker worker(PlainChannel(server->address(), made_.Open(Role::kWorker)), GetHello(0));
  ASSERT_TRUE(worker.Hello().ok());
  ASSERT_TRUE(worker.Initialize(0.0f).ok());
  ASSERT_TRUE(worker.Pull(0).ok());
  const auto pushed = worker.Push(1, 1.0f);
  EXPECT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(words.All(), "");
}

struct Fault {
  std::string name;
  std::shared_ptr<CertificateFiles> server;  // null: no TLS
  std::shared_ptr<CertificateFiles> worker;
  std::vector<std::string> worker_is_told;
  std::string server_says;
  absl::StatusCode code = absl::StatusCode::kUnauthenticated;
};

TEST_F(TlsTest, WorkerAndServerBothReportEachTlsFault) {
  const TestCertificates other;
  const auto good_server = made_.Open(Role::kServer);
  const TestValidity long_ago{absl::Now() - absl::Hours(100), absl::Now() + absl::Hours(100)};
  const auto good_worker = OpenFiles(made_.Make(Role::kWorker, "any", {}, long_ago), Role::kWorker);
  const TestValidity over{absl::Now() - absl::Hours(3), absl::Now() - absl::Hours(1)};
  const TestValidity later{absl::Now() + absl::Hours(1), absl::Now() + absl::Hours(3)};
  const std::vector<std::string> here = {"127.0.0.1"};
  const auto expired =
      OpenBehind(made_.Make(Role::kServer, "any", here, over), Role::kServer, absl::Hours(2));
  const auto early =
      OpenBehind(made_.Make(Role::kServer, "any", here, later), Role::kServer, -absl::Hours(2));
  ASSERT_TRUE(expired.ok() && early.ok()) << expired.status() << early.status();
  const std::vector<Fault> faults = {
      {"plaintext client on a TLS port",
       good_server,
       nullptr,
       {"speaks without TLS", "--certs=DIR"},
       "speaks without TLS, but this server requires TLS"},
      {"TLS client on a plaintext port",
       nullptr,
       good_worker,
       {"speaks without TLS", "--certs=DIR"},
       "speaks TLS, but this server runs without"},
      {"wrong authority",
       good_server,
       other.Open(Role::kWorker),
       {"of another authority", "signed by"},
       "does not know the authority that signed this server's certificate"},
      {"expired",
       *expired,
       good_worker,
       {"torchps://job/server/any that expired at"},
       "finds this server's certificate expired or not valid yet"},
      {"not yet valid",
       *early,
       good_worker,
       {"torchps://job/server/any that is not valid yet", "is this machine's clock right"},
       "finds this server's certificate expired or not valid yet"},
      {"wrong name",
       OpenFiles(made_.Make(Role::kServer, "any", {"alpha"}), Role::kServer),
       good_worker,
       {"certificate for alpha, not for '127.0.0.1'", "psctl certs --hosts="},
       "is not for the address that it called"},
      {"wrong role",
       good_server,
       made_.Open(Role::kOperator),
       {"torchps://job/operator/any may not call Hello; expected the role worker"},
       "refused Hello to a client at 127.0.0.1: the certificate torchps://job/operator/any may "
       "not call Hello; expected the role worker",
       absl::StatusCode::kPermissionDenied},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    Words words;
    const auto server = Start(fault.server, &words);
    ASSERT_NE(server, nullptr);
    const absl::Duration began = clock_.Now();
    const absl::Status status = Greet(server->address(), fault.worker);
    EXPECT_TRUE(Eventually([&] { return words.Contain(fault.server_says); })) << words.All();
    const absl::Duration took = clock_.Now() - began;
    std::printf("%s (%s)\n  worker: %s\n  server: %s", fault.name.c_str(),
                absl::FormatDuration(took).c_str(), status.ToString().c_str(), words.All().c_str());
    EXPECT_LT(took, kOneSecond);
    EXPECT_EQ(status.code(), fault.code) << status;
    for (const std::string& word : fault.worker_is_told) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
    if (fault.code == absl::StatusCode::kUnauthenticated) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("server 0 at 127.0.0.1:"));
    }
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
}

// Connects as a hostile client that trusts any server. The client shows the certificate in
// `directory`, if any, and then the one in the file `behind`, if any. Returns the bytes of the
// server's first frame, or an empty string if the server refuses.
std::string HostileHandshake(const std::string& address, const std::string& directory,
                             const std::string& behind = "") {
  const auto socket = ConnectTcp(address);
  EXPECT_TRUE(socket.ok());
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  const unsigned char http2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context, http2, sizeof(http2));
  if (!directory.empty()) {
    EXPECT_EQ(
        SSL_CTX_use_certificate_file(context, (directory + "/cert.pem").c_str(), SSL_FILETYPE_PEM),
        1);
    EXPECT_EQ(
        SSL_CTX_use_PrivateKey_file(context, (directory + "/key.pem").c_str(), SSL_FILETYPE_PEM),
        1);
  }
  if (!behind.empty()) {
    std::FILE* const file = std::fopen(behind.c_str(), "r");
    X509* const certificate = PEM_read_X509(file, nullptr, nullptr, nullptr);
    std::fclose(file);
    EXPECT_EQ(SSL_CTX_add_extra_chain_cert(context, certificate), 1);  // takes ownership
  }
  SSL* const ssl = SSL_new(context);
  SSL_set_fd(ssl, socket->get());
  char bytes[64];
  int got = 0;
  if (SSL_connect(ssl) == 1) got = SSL_read(ssl, bytes, sizeof(bytes));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return std::string(bytes, std::max(0, got));
}

// torchps programs check their own files first, so they never show such certificates to a server.
// Other programs may.
TEST_F(TlsTest, RefusesInvalidClientCertificates) {
  const TestCertificates other;
  const TestCertificates other_job("elsewhere");
  const TestValidity over{absl::Now() - absl::Hours(2), absl::Now() - absl::Hours(1)};
  const TestValidity later{absl::Now() + absl::Hours(1), absl::Now() + absl::Hours(2)};
  struct Case {
    std::string name;
    std::string directory;
    std::string worker_says;  // empty if the files are valid
    std::string server_says;
  };
  const std::vector<Case> cases = {
      {"none", "", "cannot read /nowhere/",
       "it has no certificate; expected one signed by 'torchps job"},
      {"of another authority", other.Make(Role::kWorker), "", "of another authority: signed by"},
      {"expired", made_.Make(Role::kWorker, "any", {}, over), "expired at",
       "torchps://job/worker/any that expired at"},
      {"not yet valid", made_.Make(Role::kWorker, "any", {}, later), "not valid yet",
       "torchps://job/worker/any that is not valid yet"},
      {"of an operator of another job", other_job.Make(Role::kOperator),
       "for the role operator; expected one for the role worker",
       "torchps://elsewhere/operator/any of another authority"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Words words;
    const auto server = Start(made_.Open(Role::kServer), &words);
    ASSERT_NE(server, nullptr);
    const absl::Duration began = clock_.Now();
    EXPECT_EQ(HostileHandshake(server->address(), c.directory), "");
    EXPECT_TRUE(Eventually([&] { return words.Contain(c.server_says); })) << words.All();
    const absl::Status own =
        OpenBehind(c.directory.empty() ? "/nowhere" : c.directory, Role::kWorker).status();
    EXPECT_LT(clock_.Now() - began, kOneSecond);
    std::printf("%s\n  worker: %s\n  server: %s", c.name.c_str(), own.ToString().c_str(),
                words.All().c_str());
    EXPECT_EQ(own.ok(), c.worker_says.empty()) << own;
    EXPECT_THAT(std::string(own.message()), HasSubstr(c.worker_says));
  }
  // With a valid certificate, the same client gets the server's SETTINGS frame. So the certificates
  // were the reason for the refusals.
  Words words;
  const auto server = Start(made_.Open(Role::kServer), &words);
  EXPECT_NE(HostileHandshake(server->address(), made_.Make(Role::kWorker)), "");
}

// Each client gets the server's certificate and could copy it, but only the server has the key.
TEST_F(TlsTest, RefusesAForgedCertificateWithAValidChain) {
  const TestCertificates other;
  Words words;
  const auto server = Start(made_.Open(Role::kServer), &words);
  ASSERT_NE(server, nullptr);
  for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
    SCOPED_TRACE(RoleName(role));
    EXPECT_EQ(HostileHandshake(server->address(), other.Make(Role::kOperator),
                               made_.Make(role) + "/cert.pem"),
              "");
  }
  EXPECT_TRUE(Eventually([&] {
    return words.Contain("torchps://job/operator/any of another authority");
  })) << words.All();
}

TEST_F(TlsTest, AcceptsAClientThatAlsoSendsTheAuthoritysCertificate) {
  Words words;
  const auto server = Start(made_.Open(Role::kServer), &words);
  ASSERT_NE(server, nullptr);
  const std::string directory = made_.Make(Role::kWorker);
  EXPECT_NE(HostileHandshake(server->address(), directory, directory + "/ca.pem"), "");
  EXPECT_EQ(words.All(), "");
}

// The fake server shows a worker's certificate of the right authority.
TEST_F(TlsTest, AWorkerRefusesAServerOfAnotherRole) {
  const std::string directory = made_.Make(Role::kWorker);
  grpc::ServerBuilder builder;
  int port = 0;
  // The server uses gRPC directly, as a hostile program may, and no code of torchps.
  grpc::SslServerCredentialsOptions options;
  std::ifstream key(directory + "/key.pem");
  std::ifstream certificate(directory + "/cert.pem");
  options.pem_key_cert_pairs.push_back(
      {std::string(std::istreambuf_iterator<char>(key), {}),
       std::string(std::istreambuf_iterator<char>(certificate), {})});
  ParameterService::Service service;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const absl::Status status = Greet(absl::StrCat("127.0.0.1:", port), made_.Open(Role::kWorker));
  std::printf("wrong role\n  worker: %s\n", status.ToString().c_str());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("torchps://job/worker/any for the role worker; expected the role server"));
}

TEST_F(TlsTest, AWorkerCertificateIsLimitedToItsRole) {
  Words words;
  const auto server = Start(made_.Open(Role::kServer), &words);
  ASSERT_NE(server, nullptr);
  const auto channel = PlainChannel(server->address(), made_.Open(Role::kWorker, "slot-1"));
  const auto parameters = ParameterService::NewStub(channel);
  const auto coordinator = Coordinator::NewStub(channel);
  // The client gets the error after the server has logged it.
  const auto expect_said = [&words](const std::string& method, const std::string& denial) {
    EXPECT_TRUE(
        words.Contain(absl::StrCat("refused ", method, " to a client at 127.0.0.1: ", denial)))
        << words.All();
  };
  const auto expect_denied = [&](const std::string& method, const grpc::Status& status,
                                 const std::string& words_expected) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(words_expected));
    expect_said(method, status.error_message());
  };
  {
    grpc::ClientContext context;
    WriteShardRequest request;
    ShardInfo reply;
    expect_denied("WriteShard", parameters->WriteShard(&context, request, &reply),
                  "may not call WriteShard");
  }
  {
    grpc::ClientContext context;
    CommitCheckpointReply reply;
    expect_denied("CommitCheckpoint",
                  parameters->CommitCheckpoint(&context, CommitCheckpointRequest(), &reply),
                  "may not call CommitCheckpoint");
  }
  {
    grpc::ClientContext context;
    ShutdownReply reply;
    expect_denied("Shutdown", parameters->Shutdown(&context, ShutdownRequest(), &reply),
                  "may not call Shutdown; expected the role operator");
  }
  {
    grpc::ClientContext context;
    CheckpointStatus reply;
    expect_denied("TakeCheckpoint",
                  coordinator->TakeCheckpoint(&context, TakeCheckpointRequest(), &reply),
                  "may not call TakeCheckpoint");
  }
  {
    grpc::ClientContext context;
    JoinRequest request;
    request.set_wanted_slot(-1);
    JoinReply reply;
    expect_denied("Join", coordinator->Join(&context, request, &reply),
                  "cannot speak for any slot, only for slot 1");
  }
  {
    // Only the coordinator may tell a server that a slot leaves for good.
    grpc::ClientContext context;
    LeaveRequest request;
    request.set_slot(1);
    LeaveReply reply;
    expect_denied("Leave for good", parameters->Leave(&context, request, &reply),
                  "may not call Leave for good; expected the role server");
  }
  PlainWorker other(channel, GetHello(0));
  const absl::Status greeted = other.Hello();
  EXPECT_EQ(greeted.code(), absl::StatusCode::kPermissionDenied);
  expect_said("Hello", std::string(greeted.message()));
  PlainWorker own(channel, GetHello(1));
  ASSERT_TRUE(own.Hello().ok());
  ASSERT_TRUE(own.Initialize(0.0f).ok());
  ASSERT_TRUE(own.Pull(0).ok());
  EXPECT_TRUE(own.ReadOnlyPull().ok()) << "reading does not act for a slot";
  PushFrame stolen = own.Frame(1, 0, 1.0f);
  stolen.set_slot(0);
  const auto pushed = own.Send({stolen});
  EXPECT_EQ(pushed.status().code(), absl::StatusCode::kPermissionDenied) << pushed.status();
  EXPECT_THAT(std::string(pushed.status().message()), HasSubstr("cannot speak for slot 0"));
  expect_said("Push", std::string(pushed.status().message()));
  PullRequest pull = own.RequestPull(0);
  pull.set_slot(0);
  EXPECT_EQ(own.Pull(pull).code(), absl::StatusCode::kPermissionDenied);
  expect_said("Pull", "the certificate torchps://job/worker/slot-1 cannot speak for slot 0");
  EXPECT_TRUE(own.Push(1, 1.0f).ok());
}

TEST_F(TlsTest, AnOperatorCertificateCannotTrain) {
  Words words;
  const auto server = Start(made_.Open(Role::kServer), &words);
  ASSERT_NE(server, nullptr);
  const auto channel = PlainChannel(server->address(), made_.Open(Role::kOperator));
  PlainWorker worker(channel, GetHello(0));
  EXPECT_EQ(worker.Hello().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(worker.Status().ok());
  EXPECT_EQ(worker.Send({worker.Frame(1, 0, 1.0f)}).status().code(),
            absl::StatusCode::kPermissionDenied);
  grpc::ClientContext context;
  ShutdownReply reply;
  EXPECT_TRUE(worker.stub().Shutdown(&context, ShutdownRequest(), &reply).ok());
}

// Server and worker take over a new key and certificate while they run, and ignore invalid files in
// between.
TEST_F(TlsTest, ReplacesCertificatesWithoutARestart) {
  Words words;
  const std::string server_directory = made_.Make(Role::kServer, "first");
  const std::string worker_directory = made_.Make(Role::kWorker, "first");
  const auto server = Start(OpenFiles(server_directory, Role::kServer), &words);
  ASSERT_NE(server, nullptr);
  const auto certificates = OpenFiles(worker_directory, Role::kWorker);
  PlainWorker before(PlainChannel(server->address(), certificates), GetHello(0));
  ASSERT_TRUE(before.Hello().ok());
  ASSERT_TRUE(before.Initialize(0.0f).ok());

  std::ofstream(server_directory + "/cert.pem") << "garbage";
  PlainWorker meanwhile(PlainChannel(server->address(), certificates), GetHello(1));
  EXPECT_TRUE(meanwhile.Hello().ok()) << "a new connection, by the certificate in use";
  EXPECT_TRUE(before.ReadOnlyPull().ok()) << "and an old one";

  made_.Replace(server_directory, Role::kServer, "second");
  made_.Replace(worker_directory, Role::kWorker, "second");
  const auto shown = [&] {
    // Reads the certificate that the server shows to a new connection.
    const auto socket = ConnectTcp(server->address());
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL* const ssl = SSL_new(context);
    SSL_set_fd(ssl, socket->get());
    std::string name;
    if (SSL_connect(ssl) == 1) {
      X509* const certificate = SSL_get1_peer_certificate(ssl);
      char text[64] = "";
      X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text,
                                sizeof(text));
      name = text;
      X509_free(certificate);
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    return name;
  };
  EXPECT_TRUE(Eventually([&] { return shown() == "server second"; })) << shown();
  EXPECT_TRUE(Eventually([&] { return certificates->current()->identity().name == "second"; }));
  PlainWorker after(PlainChannel(server->address(), certificates), GetHello(1));
  EXPECT_TRUE(after.Hello().ok());
  EXPECT_TRUE(before.ReadOnlyPull().ok()) << "the old connection was never touched";
}

}  // namespace
}  // namespace torchps
