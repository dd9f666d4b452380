#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "torchps/security/certificate_authority.h"
#include "torchps/security/certificate_files.h"

namespace torchps {

// The validity period of a certificate; by default it includes the current time.
struct TestValidity {
  absl::Time from = absl::Now() - absl::Hours(1);
  absl::Time until = absl::Now() + absl::Hours(1000);
};

// Creates a certificate authority for a test, and directories with certificates signed by it, under
// the test's temporary directory. Errors end the test. Not thread-safe.
class TestCertificates {
 public:
  explicit TestCertificates(const std::string& job = "job");
  ~TestCertificates();

  // Creates a directory with ca.pem, cert.pem and key.pem and returns the path.
  std::string Make(Role role, const std::string& name = "any",
                   std::vector<std::string> hosts = {"127.0.0.1", "localhost"},
                   TestValidity validity = TestValidity()) const;
  // Replaces the files in a directory that Make() returned.
  void Replace(const std::string& directory, Role role, const std::string& name = "any",
               std::vector<std::string> hosts = {"127.0.0.1", "localhost"},
               TestValidity validity = TestValidity()) const;
  // Creates a directory with Make() and opens its certificates. Errors end the test.
  std::shared_ptr<CertificateFiles> Open(Role role, const std::string& name = "any") const;

  const CertificateAuthority& authority() const { return *authority_; }

 private:
  const std::string job_;
  std::string root_;
  mutable int made_ = 0;
  std::unique_ptr<CertificateAuthority> authority_;
};

// Opens the certificates in a directory. Errors end the test.
std::shared_ptr<CertificateFiles> OpenFiles(const std::string& directory, Role role);

}  // namespace torchps
