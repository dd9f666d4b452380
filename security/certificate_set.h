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

// Names of the three files of a process's credentials.
inline constexpr char kAuthorityFile[] = "ca.pem";      // authorities to believe, one or more
inline constexpr char kCertificateFile[] = "cert.pem";  // this process's own, intermediate ones behind it
inline constexpr char kKeyFile[] = "key.pem";           // for this user's eyes only

// What is wrong with a peer's certificate.
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
  kWrongName,  // of a server: not the name or address under which it was called
};

struct PeerVerdict {
  PeerFault fault = PeerFault::kNone;
  // The end of a sentence that begins with whose it is: "has a certificate that expired at ...".
  std::string words;
  Identity identity;  // if there is no fault

  bool ok() const { return fault == PeerFault::kNone; }
};

// What a process of ours shows and believes: its certificate and key, and the authorities that it
// trusts. One that exists is consistent: the key belongs to the certificate, which the authority
// signed, and which says who we are.
//
// Immutable, so thread-safe.
class CertificateSet {
 public:
  // From the three files in DIRECTORY/ROLE, if there is such a directory, else in DIRECTORY, for
  // use in `role` at `now`. Each error names the file and what to do:
  //   NOT_FOUND            a file is missing
  //   PERMISSION_DENIED    a file cannot be read, or everybody may read the key
  //   FAILED_PRECONDITION  not PEM, key of another certificate, not signed by ca.pem, expired or
  //                        not valid yet, no identity, another role
  static absl::StatusOr<std::shared_ptr<const CertificateSet>> Read(const std::string& directory,
                                                                    Role role, absl::Time now);

  // DIRECTORY/ROLE or DIRECTORY, as Read() chooses it.
  static std::string DirectoryFor(const std::string& directory, Role role);

  ~CertificateSet();

  const Identity& identity() const { return identity_; }
  absl::Time not_after() const { return not_after_; }
  const std::string& certificate_pem() const { return certificate_pem_; }
  const std::string& key_pem() const { return key_pem_; }

  // Whether a peer that showed `chain_pem` (its own certificate first) is to be talked to at `now`:
  // one of our authorities signed it, it is valid, it belongs to our job and, where `host` is
  // given, to a server that may be found under this name or address.
  PeerVerdict CheckPeer(absl::string_view chain_pem, const absl::optional<std::string>& host,
                        absl::Time now) const;

 private:
  CertificateSet() = default;

  // Words: "that expired at ...".
  PeerVerdict VerifyChain(const std::vector<x509_st*>& chain, bool of_server, absl::Time now) const;

  std::string certificate_pem_;
  std::string key_pem_;
  Identity identity_;
  absl::Time not_after_;
  x509_store_st* authorities_ = nullptr;
  std::string authority_names_;  // for messages
};

}  // namespace torchps
