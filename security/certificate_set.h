#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "security/identity.h"

struct x509_st;
struct x509_store_st;

namespace torchps {

// File names of a process's credentials.
inline constexpr char kAuthorityFile[] = "ca.pem";  // trusted authorities, at least one
// this process's certificate, then intermediate certificates
inline constexpr char kCertificateFile[] = "cert.pem";
inline constexpr char kKeyFile[] = "key.pem";  // private key, readable only by this user

// The reasons for rejecting a peer's certificate.
enum class PeerFault {
  kNone,
  kNoCertificate,
  kUnreadable,
  kOtherAuthority,
  kExpired,
  kNotYetValid,
  kNoIdentity,
  kOtherJob,
  kWrongRole,
  kWrongName,  // a server certificate for a different name or address
};

struct PeerVerdict {
  PeerFault fault = PeerFault::kNone;
  // Predicate of a sentence with the peer as its subject: "has a certificate that expired at ...".
  std::string words;
  Identity identity;  // set only if the peer is accepted

  bool ok() const { return fault == PeerFault::kNone; }
};

// The credentials of a process: its certificate and key, and the authorities that it trusts. Always
// consistent: the key matches the certificate, and a trusted authority signed the certificate,
// which contains an identity.
//
// Immutable and therefore thread-safe.
class CertificateSet {
 public:
  // Reads the three files in DIRECTORY/ROLE if that directory exists, otherwise in DIRECTORY, for
  // use in `role` at time `now`. Error messages name the file and a remedy:
  //   NOT_FOUND            a file is missing
  //   PERMISSION_DENIED    a file cannot be read, or all users may read the key
  //   FAILED_PRECONDITION  not PEM, key does not match the certificate, not signed by ca.pem,
  //                        expired or not valid yet, without identity, different role
  static absl::StatusOr<std::shared_ptr<const CertificateSet>> Read(const std::string& directory,
                                                                    Role role, absl::Time now);

  // Returns DIRECTORY/ROLE or DIRECTORY, chosen as in Read().
  static std::string DirectoryFor(const std::string& directory, Role role);

  ~CertificateSet();

  const Identity& identity() const { return identity_; }
  absl::Time not_after() const { return not_after_; }
  const std::string& certificate_pem() const { return certificate_pem_; }
  const std::string& key_pem() const { return key_pem_; }

  // Verifies a peer's certificate chain `chain_pem` (leaf first) at time `now`. The peer is
  // accepted if a trusted authority signed the certificate, the certificate is valid, and it
  // belongs to the same job. If `host` is given, it must also be a server certificate for this name
  // or address.
  PeerVerdict CheckPeer(absl::string_view chain_pem, const absl::optional<std::string>& host,
                        absl::Time now) const;

 private:
  CertificateSet() = default;

  // Returns words such as "that expired at ...".
  PeerVerdict VerifyChain(const std::vector<x509_st*>& chain, bool of_server, absl::Time now) const;

  std::string certificate_pem_;
  std::string key_pem_;
  Identity identity_;
  absl::Time not_after_;
  x509_store_st* authorities_ = nullptr;
  std::string authority_names_;  // for messages
};

}  // namespace torchps
