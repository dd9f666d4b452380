// Tests certificates without a network: issuing, loading from a directory, peer verification and
// reloading.

#include "tests/testing/certificates.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/mutex.h"
#include "torchps/security/certificate_authority.h"
#include "torchps/security/certificate_files.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteAll(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::trunc) << contents;
}

TestValidity Between(absl::Duration from, absl::Duration until) {
  return {absl::Now() + from, absl::Now() + until};
}

TEST(CertificateSetTest, ReadsIssuedCertificates) {
  const TestCertificates made;
  const std::string directory = made.Make(Role::kWorker, "slot-2");
  const auto set = CertificateSet::Read(directory, Role::kWorker, absl::Now());
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ((*set)->identity(), (Identity{"job", Role::kWorker, "slot-2"}));
  struct stat key {};
  ASSERT_EQ(stat((directory + "/key.pem").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777, 0600);
}

TEST(CertificateSetTest, ReadsTheFolderOfTheRoleInsideTheGivenFolder) {
  const TestCertificates made;
  const std::string parent = made.Make(Role::kServer);  // also contains the server's files
  made.Replace(parent + "/worker", Role::kWorker);
  EXPECT_TRUE(CertificateSet::Read(parent, Role::kWorker, absl::Now()).ok());
  EXPECT_TRUE(CertificateSet::Read(parent, Role::kServer, absl::Now()).ok());
}

struct BadFiles {
  std::string name;
  std::function<void(const std::string& directory)> spoil;
  absl::StatusCode code;
  std::vector<std::string> words;
};

TEST(CertificateSetTest, ErrorNamesTheInvalidFileAndTheReason) {
  const TestCertificates made;
  const TestCertificates other;
  const std::vector<BadFiles> cases = {
      {"no key",
       [](const std::string& d) { unlink((d + "/key.pem").c_str()); },
       absl::StatusCode::kNotFound,
       {"key.pem", "no such file", "psctl certs"}},
      {"no authority",
       [](const std::string& d) { unlink((d + "/ca.pem").c_str()); },
       absl::StatusCode::kNotFound,
       {"ca.pem"}},
      {"a key for everybody",
       [](const std::string& d) { chmod((d + "/key.pem").c_str(), 0644); },
       absl::StatusCode::kPermissionDenied,
       {"key.pem", "all users", "chmod 600"}},
      {"a directory in place of a file",
       [](const std::string& d) {
         unlink((d + "/cert.pem").c_str());
         mkdir((d + "/cert.pem").c_str(), 0700);
       },
       absl::StatusCode::kFailedPrecondition,
       {"cert.pem", "not a regular file"}},
      {"garbage",
       [](const std::string& d) { WriteAll(d + "/cert.pem", "garbage"); },
       absl::StatusCode::kFailedPrecondition,
       {"cert.pem", "no certificate in PEM format"}},
      {"an empty authority",
       [](const std::string& d) { WriteAll(d + "/ca.pem", ""); },
       absl::StatusCode::kFailedPrecondition,
       {"ca.pem", "no certificate in PEM format"}},
      {"half a certificate",
       [](const std::string& d) {
         const std::string whole = ReadAll(d + "/cert.pem");
         WriteAll(d + "/cert.pem", whole.substr(0, whole.size() / 2));
       },
       absl::StatusCode::kFailedPrecondition,
       {"cert.pem"}},
      {"a file without end",
       [](const std::string& d) { WriteAll(d + "/cert.pem", std::string(1 << 20, 'x')); },
       absl::StatusCode::kFailedPrecondition,
       {"cert.pem", "too large"}},
      {"half a key",
       [](const std::string& d) { WriteAll(d + "/key.pem", "-----BEGIN"); },
       absl::StatusCode::kFailedPrecondition,
       {"key.pem", "no private key"}},
      {"the key of another certificate",
       [&](const std::string& d) {
         WriteAll(d + "/key.pem", ReadAll(made.Make(Role::kWorker) + "/key.pem"));
       },
       absl::StatusCode::kFailedPrecondition,
       {"key.pem", "is not the key of", "cert.pem"}},
      {"another authority",
       [&](const std::string& d) { WriteAll(d + "/ca.pem", other.authority().certificate_pem()); },
       absl::StatusCode::kFailedPrecondition,
       {"cert.pem", "of another authority"}},
      {"expired",
       [&](const std::string& d) {
         made.Replace(d, Role::kWorker, "any", {}, Between(-absl::Hours(2), -absl::Minutes(1)));
       },
       absl::StatusCode::kFailedPrecondition,
       {"cert.pem", "expired at", "psctl certs"}},
      {"not yet valid",
       [&](const std::string& d) {
         made.Replace(d, Role::kWorker, "any", {}, Between(absl::Hours(1), absl::Hours(2)));
       },
       absl::StatusCode::kFailedPrecondition,
       {"cert.pem", "not valid yet", "clock"}},
      {"another role",
       [&](const std::string& d) { made.Replace(d, Role::kOperator); },
       absl::StatusCode::kFailedPrecondition,
       {"role operator", "expected one for the role worker"}},
  };
  for (const BadFiles& bad : cases) {
    SCOPED_TRACE(bad.name);
    const std::string directory = made.Make(Role::kWorker);
    bad.spoil(directory);
    const auto set = CertificateSet::Read(directory, Role::kWorker, absl::Now());
    EXPECT_EQ(set.status().code(), bad.code) << set.status();
    for (const std::string& word : bad.words) {
      EXPECT_THAT(std::string(set.status().message()), HasSubstr(word));
    }
    EXPECT_THAT(std::string(set.status().message()), Not(HasSubstr("\n")));
  }
}

TEST(CertificateSetTest, VerifiesPeersByRoleAndJob) {
  const TestCertificates made;
  const TestCertificates other_authority;
  const TestCertificates other_job("elsewhere");
  const auto own = CertificateSet::Read(made.Make(Role::kServer), Role::kServer, absl::Now());
  ASSERT_TRUE(own.ok()) << own.status();
  const auto chain = [](const TestCertificates& of, Role role,
                        std::vector<std::string> hosts = {"127.0.0.1", "alpha", "::1"},
                        TestValidity validity = {}) {
    return ReadAll(of.Make(role, "any", std::move(hosts), validity) + "/cert.pem");
  };
  struct Case {
    std::string name;
    std::string chain;
    std::optional<std::string> host;
    PeerFault fault;
    std::string words;
  };
  const std::vector<Case> cases = {
      {"a worker", chain(made, Role::kWorker), {}, PeerFault::kNone, ""},
      {"an operator", chain(made, Role::kOperator), {}, PeerFault::kNone, ""},
      {"a server that calls", chain(made, Role::kServer), {}, PeerFault::kNone, ""},
      {"a server by name", chain(made, Role::kServer), "alpha", PeerFault::kNone, ""},
      {"a server by address", chain(made, Role::kServer), "127.0.0.1", PeerFault::kNone, ""},
      {"a server by IPv6", chain(made, Role::kServer), "[::1]", PeerFault::kNone, ""},
      {"none", "", {}, PeerFault::kNoCertificate, "has no certificate"},
      {"garbage", "garbage", {}, PeerFault::kUnreadable, "cannot be read"},
      {"another authority of the same name",
       chain(other_authority, Role::kWorker),
       {},
       PeerFault::kOtherAuthority,
       "of another authority: signed by 'torchps job "},
      {"another job of another authority",
       chain(other_job, Role::kWorker),
       {},
       PeerFault::kOtherAuthority,
       "torchps://elsewhere/worker/any"},
      {"expired",
       chain(made, Role::kWorker, {}, Between(-absl::Hours(2), -absl::Minutes(1))),
       {},
       PeerFault::kExpired,
       "torchps://job/worker/any that expired at"},
      {"not yet valid",
       chain(made, Role::kWorker, {}, Between(absl::Hours(1), absl::Hours(2))),
       {},
       PeerFault::kNotYetValid,
       "not valid yet"},
      {"a server of another name", chain(made, Role::kServer), "beta", PeerFault::kWrongName,
       "for 127.0.0.1, alpha, 0:0:0:0:0:0:0:1, not for 'beta'"},
      {"a worker in a server's place", chain(made, Role::kWorker), "127.0.0.1",
       PeerFault::kWrongRole,
       "torchps://job/worker/any for the role worker; expected the role server"},
      {"the authority itself",
       made.authority().certificate_pem(),
       {},
       PeerFault::kWrongRole,
       "not made for a client"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const PeerVerdict verdict = (*own)->CheckPeer(c.chain, c.host, absl::Now());
    EXPECT_EQ(verdict.fault, c.fault) << verdict.words;
    EXPECT_THAT(verdict.words, HasSubstr(c.words));
  }
}

// An authority may serve several jobs, but each process accepts only certificates of the same job.
TEST(CertificateSetTest, RefusesACertificateThatTheAuthorityIssuedForAnotherJob) {
  const TestCertificates made;
  const auto own = CertificateSet::Read(made.Make(Role::kServer), Role::kServer, absl::Now());
  ASSERT_TRUE(own.ok());
  const auto issued = made.authority().Issue({{"second", Role::kWorker, "any"},
                                              {},
                                              absl::Now() - absl::Hours(1),
                                              absl::Now() + absl::Hours(1)});
  ASSERT_TRUE(issued.ok()) << issued.status();
  const PeerVerdict verdict = (*own)->CheckPeer(issued->certificate_pem, std::nullopt, absl::Now());
  EXPECT_EQ(verdict.fault, PeerFault::kOtherJob);
  EXPECT_THAT(verdict.words, HasSubstr("another job; expected 'job'"));
}

TEST(CertificateAuthorityTest, SavesAndLoadsTheAuthority) {
  const TestCertificates made;
  const std::string directory = made.Make(Role::kWorker) + "/ca";
  ASSERT_TRUE(made.authority().Save(directory).ok());
  const auto loaded = CertificateAuthority::Load(directory);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->certificate_pem(), made.authority().certificate_pem());
  WriteAll(directory + "/key.pem", "");
  EXPECT_EQ(CertificateAuthority::Load(directory).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CertificateAuthority::Load(directory + "/none").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(CertificateAuthorityTest, RefusesToIssueForInvalidNamesAndHosts) {
  const TestCertificates made;
  const absl::Time from = absl::Now();
  const absl::Time until = from + absl::Hours(1);
  const auto code = [&](const Identity& identity, std::vector<std::string> hosts) {
    return made.authority().Issue({identity, std::move(hosts), from, until}).status().code();
  };
  EXPECT_EQ(code({"a/b", Role::kWorker, "any"}, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"a", Role::kWorker, ""}, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"a", Role::kServer, "any"}, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"a", Role::kServer, "any"}, {"host:7000"}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"a", Role::kServer, "any"}, {"URI:torchps://a/operator/x"}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"a", Role::kServer, "any"}, {"a,URI:x"}), absl::StatusCode::kInvalidArgument);
}

class CertificateFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = made_.Make(Role::kServer, "first");
    CertificateFiles::Options options;
    options.directory = directory_;
    options.role = Role::kServer;
    options.log = [this](const std::string& line) { said_.push_back(line); };
    // The test calls Look() itself.
    options.look_every = absl::Hours(1);
    auto files = CertificateFiles::Open(std::move(options));
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *files;
  }

  std::string name() const { return files_->current()->identity().name; }

  const TestCertificates made_;
  std::string directory_;
  std::vector<std::string> said_;
  std::shared_ptr<CertificateFiles> files_;
};

TEST_F(CertificateFilesTest, ReloadsChangedFiles) {
  EXPECT_THAT(ReadAll(files_->published_path()), HasSubstr(files_->current()->key_pem()));
  EXPECT_FALSE(files_->Look());
  made_.Replace(directory_, Role::kServer, "second");
  EXPECT_TRUE(files_->Look());
  EXPECT_EQ(name(), "second");
  const std::string published = ReadAll(files_->published_path());
  EXPECT_THAT(published, HasSubstr(ReadAll(directory_ + "/key.pem")));
  EXPECT_THAT(published, HasSubstr(ReadAll(directory_ + "/cert.pem")));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("torchps://job/server/second")));
}

TEST_F(CertificateFilesTest, KeepsOldFilesIfNewOnesAreInvalid) {
  const std::string published = ReadAll(files_->published_path());
  const std::string certificate = ReadAll(directory_ + "/cert.pem");
  WriteAll(directory_ + "/cert.pem", "garbage");
  EXPECT_FALSE(files_->Look());
  // The reason is not logged yet, because the other files may still be on their way.
  EXPECT_TRUE(said_.empty());
  EXPECT_FALSE(files_->Look());
  EXPECT_FALSE(files_->Look());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("keeps its certificate")));
  EXPECT_EQ(ReadAll(files_->published_path()), published);
  EXPECT_EQ(name(), "first");
  WriteAll(directory_ + "/cert.pem", certificate);
  EXPECT_TRUE(files_->Look());
}

TEST_F(CertificateFilesTest, WaitsForACompleteSetOfFiles) {
  const std::string next = made_.Make(Role::kServer, "second");
  rename((next + "/key.pem").c_str(), (directory_ + "/key.pem").c_str());
  EXPECT_FALSE(files_->Look());
  EXPECT_EQ(name(), "first");
  rename((next + "/cert.pem").c_str(), (directory_ + "/cert.pem").c_str());
  EXPECT_TRUE(files_->Look());
  EXPECT_EQ(name(), "second");
}

}  // namespace
}  // namespace torchps
