// Tests `psctl certs`: the programs accept the certificates, and renewal does not interrupt them.

#include "torchps/tools/certs_command.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/security/certificate_files.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

class CertsCommandTest : public ::testing::Test {
 protected:
  CertsCommandTest() {
    const char* const base = std::getenv("TEST_TMPDIR");
    std::string directory = absl::StrCat(base == nullptr ? "/tmp" : base, "/certs-XXXXXX");
    request_.directory = absl::StrCat(mkdtemp(directory.data()), "/certs");
    request_.job = "mnist";
    request_.hosts = {"alpha", "10.0.0.2"};
    request_.slots = 2;
    request_.validity = absl::Hours(24);
    request_.now = absl::Now();
  }

  absl::StatusOr<std::shared_ptr<const CertificateSet>> Read(Role role,
                                                             const std::string& folder = "") {
    return CertificateSet::Read(absl::StrCat(request_.directory, folder), role, request_.now);
  }

  CertsRequest request_;
  std::ostringstream out_;
};

TEST_F(CertsCommandTest, MakesCertificatesForEachProgram) {
  ASSERT_TRUE(MakeCertificates(request_, out_).ok());
  const auto server = Read(Role::kServer);
  const auto worker = Read(Role::kWorker);
  const auto operators = Read(Role::kOperator);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE(operators.ok()) << operators.status();
  const auto bound = Read(Role::kWorker, "/worker-1");
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(BoundSlot((*bound)->identity()), 1);
  for (const char* host : {"alpha", "10.0.0.2", "localhost", "127.0.0.1", "[::1]"}) {
    const PeerVerdict verdict =
        (*worker)->CheckPeer((*server)->certificate_pem(), std::string(host), request_.now);
    EXPECT_TRUE(verdict.ok()) << host << ": " << verdict.words;
  }
  EXPECT_EQ(
      (*worker)->CheckPeer((*server)->certificate_pem(), std::string("beta"), request_.now).fault,
      PeerFault::kWrongName);
  EXPECT_THAT(out_.str(), HasSubstr("torchps://mnist/worker/slot-1"));
}

TEST_F(CertsCommandTest, CertificatesListALoopbackAddressOnce) {
  request_.hosts = {"127.0.0.1"};
  ASSERT_TRUE(MakeCertificates(request_, out_).ok());
  EXPECT_THAT(out_.str(), HasSubstr("for localhost, 127.0.0.1, ::1"));
  EXPECT_THAT(out_.str(), ::testing::Not(HasSubstr("::1, 127.0.0.1")));
}

TEST_F(CertsCommandTest, RenewalKeepsTheAuthority) {
  ASSERT_TRUE(MakeCertificates(request_, out_).ok());
  const auto old_worker = Read(Role::kWorker);
  ASSERT_TRUE(old_worker.ok());
  request_.hosts.push_back("beta");
  ASSERT_TRUE(MakeCertificates(request_, out_).ok());
  const auto server = Read(Role::kServer);
  ASSERT_TRUE(server.ok());
  EXPECT_TRUE((*old_worker)
                  ->CheckPeer((*server)->certificate_pem(), std::string("beta"), request_.now)
                  .ok());
  EXPECT_NE((*Read(Role::kWorker))->key_pem(), (*old_worker)->key_pem());
}

// `psctl certs` advises to keep the authority's key outside of the cluster. So the key may be
// missing.
TEST_F(CertsCommandTest, RefusesToReplaceAnAuthorityWhoseKeyIsMissing) {
  ASSERT_TRUE(MakeCertificates(request_, out_).ok());
  const std::string server = (*Read(Role::kServer))->certificate_pem();
  const std::string key = request_.directory + "/ca/key.pem";
  const std::string elsewhere = request_.directory + "/key.pem";
  ASSERT_EQ(std::rename(key.c_str(), elsewhere.c_str()), 0);
  const absl::Status made = MakeCertificates(request_, out_);
  EXPECT_EQ(made.code(), absl::StatusCode::kFailedPrecondition) << made;
  EXPECT_THAT(std::string(made.message()), HasSubstr(key));
  EXPECT_EQ((*Read(Role::kServer))->certificate_pem(), server);
  ASSERT_EQ(std::rename(elsewhere.c_str(), key.c_str()), 0);
  EXPECT_TRUE(MakeCertificates(request_, out_).ok());
  // An authority without its certificate is made anew.
  ASSERT_EQ(std::remove((request_.directory + "/ca/ca.pem").c_str()), 0);
  EXPECT_TRUE(MakeCertificates(request_, out_).ok());
}

TEST_F(CertsCommandTest, RejectsInvalidHostsJobsAndDirectories) {
  request_.hosts = {"alpha:7000"};
  const absl::Status port = MakeCertificates(request_, out_);
  EXPECT_EQ(port.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(port.message()), HasSubstr("'alpha:7000'"));
  request_.job = "my job";
  EXPECT_EQ(MakeCertificates(request_, out_).code(), absl::StatusCode::kInvalidArgument);
  request_.job = "mnist";
  request_.directory = "/dev/null/certs";
  const absl::Status directory = MakeCertificates(request_, out_);
  EXPECT_EQ(directory.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(directory.message()), HasSubstr("/dev/null/certs"));
}

}  // namespace
}  // namespace torchps
