#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/identity.h"

struct evp_pkey_st;
struct x509_st;

namespace torchps {

// A certificate with its key, both in PEM.
struct IssuedCertificate {
  std::string certificate_pem;
  std::string key_pem;
};

// Makes certificates: one authority's self-signed one, and those of servers, workers and operators
// that it signs. Keys are on the curve P-256, which every TLS library has and which signs a
// handshake in some 20 us.
//
// Thread-compatible. Owns its key, which leaves it only through Save().
class CertificateAuthority {
 public:
  struct Request {
    Identity identity;
    // Of a server: names and addresses under which others find it. Others need none.
    std::vector<std::string> hosts;
    absl::Time not_before;
    absl::Time not_after;
  };

  // A new one, for one job or cluster. INVALID_ARGUMENT: the job's name.
  static absl::StatusOr<std::unique_ptr<CertificateAuthority>> Create(const std::string& job,
                                                                      absl::Time not_before,
                                                                      absl::Time not_after);
  // One that was saved. NOT_FOUND: there is none. FAILED_PRECONDITION: its files are damaged, or its
  // key is elsewhere. PERMISSION_DENIED: one of them cannot be read.
  static absl::StatusOr<std::unique_ptr<CertificateAuthority>> Load(const std::string& directory);

  ~CertificateAuthority();

  // As ca.pem and key.pem. UNAVAILABLE: what the system says of the directory.
  absl::Status Save(const std::string& directory) const;

  // INVALID_ARGUMENT: the identity, a host that is neither a name nor an address, or a server
  // without a host.
  absl::StatusOr<IssuedCertificate> Issue(const Request& request) const;

  const std::string& certificate_pem() const { return certificate_pem_; }

 private:
  CertificateAuthority() = default;

  evp_pkey_st* key_ = nullptr;
  x509_st* certificate_ = nullptr;
  std::string certificate_pem_;
};

// Writes what a process of ours is started with (security/certificate_set.h): ca.pem, cert.pem,
// key.pem, each at once by a temporary file and a rename, the key for its owner alone. Makes the
// directory, not its parent. UNAVAILABLE: what the system says, and about which file.
absl::Status WriteCertificates(const std::string& directory, const std::string& authority_pem,
                               const IssuedCertificate& issued);

}  // namespace torchps
