#include "tests/testing/certificates.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {

TestCertificates::TestCertificates(const std::string& job) : job_(job) {
  const char* const base = std::getenv("TEST_TMPDIR");
  root_ = absl::StrCat(base == nullptr ? "/tmp" : base, "/certificates-XXXXXX");
  TPS_CHECK(mkdtemp(root_.data()) != nullptr, "the test cannot create a directory");
  auto authority = CertificateAuthority::Create(job, absl::Now() - absl::Hours(10000),
                                                absl::Now() + absl::Hours(10000));
  TPS_CHECK(authority.ok(), "the test's authority cannot be made");
  authority_ = *std::move(authority);
}

TestCertificates::~TestCertificates() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

std::string TestCertificates::Make(Role role, const std::string& name,
                                   std::vector<std::string> hosts, TestValidity validity) const {
  const std::string directory = absl::StrCat(root_, "/", ++made_);
  Replace(directory, role, name, std::move(hosts), validity);
  return directory;
}

void TestCertificates::Replace(const std::string& directory, Role role, const std::string& name,
                               std::vector<std::string> hosts, TestValidity validity) const {
  if (role != Role::kServer) hosts.clear();
  const auto issued =
      authority_->Issue({{job_, role, name}, std::move(hosts), validity.from, validity.until});
  TPS_CHECK(issued.ok(), "the test's certificate cannot be made");
  const absl::Status written = WriteCertificates(directory, authority_->certificate_pem(), *issued);
  TPS_CHECK(written.ok(), "the test's certificate cannot be written");
}

std::shared_ptr<CertificateFiles> TestCertificates::Open(Role role, const std::string& name) const {
  return OpenFiles(Make(role, name), role);
}

std::shared_ptr<CertificateFiles> OpenFiles(const std::string& directory, Role role) {
  CertificateFiles::Options options;
  options.directory = directory;
  options.role = role;
  auto files = CertificateFiles::Open(std::move(options));
  TPS_CHECK(files.ok(), "the test's certificates cannot be opened");
  return *std::move(files);
}

}  // namespace torchps
