// Tests a ps_server with few file descriptors while unauthenticated clients begin TLS handshakes
// and do not finish them. Workers and operators still connect, and the server still opens files.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "openssl/ssl.h"
#include "tests/testing/certificates.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "tests/testing/program.h"
#include "torchps/common/process/file_descriptor.h"
#include "torchps/tools/base/tcp.h"

namespace torchps {
namespace {

constexpr int kFiles = 320;
// The number of descriptors that torchps/server/rpc/connection_filter.h keeps free.
constexpr int kReserved = 64;
// More connections than the server may open files.
constexpr int kStrangers = 400;

// Returns the ClientHello that OpenSSL sends.
std::string ClientHello() {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             &SSL_CTX_free);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), &SSL_free);
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), sent);
  SSL_connect(ssl.get());
  std::string hello(static_cast<size_t>(BIO_pending(sent)), '\0');
  EXPECT_EQ(BIO_read(sent, hello.data(), static_cast<int>(hello.size())), hello.size());
  return hello;
}

int OpenFiles(pid_t pid) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"))) {
    files += entry.is_symlink() ? 1 : 0;
  }
  return files;
}

class HalfOpenHandshakesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/half_open_", getpid());
    server_ = StartServerProgram(
        {absl::StrCat("--certs=", made_.Make(Role::kServer)), absl::StrCat("--dir=", directory_)},
        kFiles);
    ASSERT_NE(server_.address, "");
  }

  std::unique_ptr<PlainWorker> Enter(SlotId slot) {
    JobHarness::Options model;
    model.job = "consistency { staleness_bound: -1 } durability { level: LOG }";
    HelloRequest hello = JobHarness::Hello(model);
    hello.set_slot(slot);
    auto worker =
        std::make_unique<PlainWorker>(PlainChannel(server_.address, certificates_), hello);
    const absl::Status greeted = worker->Hello();
    EXPECT_TRUE(greeted.ok()) << greeted;
    return worker;
  }

  // Opens up to kStrangers connections from one host, each of which sends `bytes` and then nothing.
  std::vector<FileDescriptor> Crowd(const std::string& bytes) {
    std::vector<FileDescriptor> crowd;
    for (int i = 0; i < kStrangers; ++i) {
      auto unauthenticated = ConnectTcp(server_.address, "127.0.0.2");
      EXPECT_TRUE(unauthenticated.ok()) << i << ": " << unauthenticated.status();
      if (!unauthenticated.ok()) break;
      WriteAll(*unauthenticated, bytes).IgnoreError();
      crowd.push_back(*std::move(unauthenticated));
    }
    return crowd;
  }

  // Pushes once, connects the crowd, and expects that the server then serves a new worker and an
  // operator and opens few files for the crowd.
  void ExpectThatWorkGoesOn(const std::string& bytes) {
    const auto early = Enter(0);
    ASSERT_TRUE(early->Initialize(0.0f).ok());
    ASSERT_TRUE(early->Push(1, 1.0f).ok());
    const std::vector<FileDescriptor> crowd = Crowd(bytes);
    const absl::Time began = absl::Now();
    const auto late = Enter(1);
    ASSERT_TRUE(late->Pull(0).ok());
    for (Step step = 1; step <= 10; ++step) {
      const auto pushed = late->Push(step, 1.0f);
      ASSERT_TRUE(pushed.ok()) << pushed.status();
    }
    PlainWorker observer(PlainChannel(server_.address, made_.Open(Role::kOperator)), late->hello());
    const auto status = observer.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(status->max_version(), 11);
    const int files = OpenFiles(server_.program->pid());
    std::printf(
        "%zu unauthenticated clients, %d of %d files open, %s for a worker and an operator\n",
        crowd.size(), files, kFiles, absl::FormatDuration(absl::Now() - began).c_str());
    EXPECT_LE(files, kFiles - kReserved / 2);
  }

  const TestCertificates made_;
  const std::shared_ptr<CertificateFiles> certificates_ = made_.Open(Role::kWorker);
  std::string directory_;
  ServerProgram server_;
};

TEST_F(HalfOpenHandshakesTest, ServesWorkersDespiteClientsWithPartialTlsHellos) {
  ExpectThatWorkGoesOn(ClientHello().substr(0, 54));
}

TEST_F(HalfOpenHandshakesTest, ServesWorkersDespiteClientsWithUnfinishedTlsHandshakes) {
  ExpectThatWorkGoesOn(ClientHello());
}

}  // namespace
}  // namespace torchps
