#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "security/certificate_authority.h"
#include "security/certificate_files.h"

namespace torchps {

// From when to when a certificate is good; by default now.
struct TestValidity {
  absl::Time from = absl::Now() - absl::Hours(1);
  absl::Time until = absl::Now() + absl::Hours(1000);
};

// An authority of a test's own, and directories with what it signs, under the test's temporary
// directory. What cannot be made ends the test. Not thread-safe.
class TestCertificates {
 public:
  explicit TestCertificates(const std::string& job = "job");
  ~TestCertificates();

  // A new directory with ca.pem, cert.pem and key.pem.
  std::string Make(Role role, const std::string& name = "any",
                   std::vector<std::string> hosts = {"127.0.0.1", "localhost"},
                   TestValidity validity = TestValidity()) const;
  // The same files anew in a directory that is there.
  void Replace(const std::string& directory, Role role, const std::string& name = "any",
               std::vector<std::string> hosts = {"127.0.0.1", "localhost"},
               TestValidity validity = TestValidity()) const;
  // Of Make(), opened in that role; errors end the test.
  std::shared_ptr<CertificateFiles> Open(Role role, const std::string& name = "any") const;

  const CertificateAuthority& authority() const { return *authority_; }

 private:
  const std::string job_;
  std::string root_;
  mutable int made_ = 0;
  std::unique_ptr<CertificateAuthority> authority_;
};

// The certificates in a directory, which must be good.
std::shared_ptr<CertificateFiles> OpenFiles(const std::string& directory, Role role);

}  // namespace torchps
