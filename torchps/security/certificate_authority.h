#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/security/roles.h"

struct evp_pkey_st;
struct x509_st;

namespace torchps {

// A certificate and its private key, both in PEM format.
struct IssuedCertificate {
  std::string certificate_pem;
  std::string key_pem;
};

// Creates certificates: a self-signed authority, and certificates that it signs for servers,
// workers and operators. Keys use the curve P-256, which all TLS libraries support and which signs
// a handshake in about 20 us.
//
// Thread-compatible. Owns the private key and exports it only through Save().
class CertificateAuthority {
 public:
  struct Request {
    Identity identity;
    // Names and addresses under which clients reach a server. Empty for other roles.
    std::vector<std::string> hosts;
    absl::Time not_before;
    absl::Time not_after;
  };

  // Creates an authority for one job or cluster. Returns INVALID_ARGUMENT if `job` is not a valid
  // name.
  static absl::StatusOr<std::unique_ptr<CertificateAuthority>> Create(const std::string& job,
                                                                      absl::Time not_before,
                                                                      absl::Time not_after);
  // Loads a saved authority. Returns NOT_FOUND if it does not exist, FAILED_PRECONDITION if its
  // files are damaged or the key is missing, and PERMISSION_DENIED if a file cannot be read.
  static absl::StatusOr<std::unique_ptr<CertificateAuthority>> Load(const std::string& directory);

  ~CertificateAuthority();

  // Writes ca.pem and key.pem. Returns UNAVAILABLE with the system's message on failure.
  absl::Status Save(const std::string& directory) const;

  // Returns INVALID_ARGUMENT if the identity is invalid, a host is neither a name nor an address,
  // or a server's request contains no host.
  absl::StatusOr<IssuedCertificate> Issue(const Request& request) const;

  const std::string& certificate_pem() const { return certificate_pem_; }

 private:
  CertificateAuthority() = default;

  evp_pkey_st* key_ = nullptr;
  x509_st* certificate_ = nullptr;
  std::string certificate_pem_;
};

// Writes a process's certificate files (torchps/security/certificate_files.h): ca.pem, cert.pem and
// key.pem. Each file is replaced atomically, and only the owner can read the key. Creates the
// directory, but not its parent. Returns UNAVAILABLE with the system's message and the path on
// failure.
absl::Status WriteCertificates(const std::string& directory, const std::string& authority_pem,
                               const IssuedCertificate& issued);

}  // namespace torchps
