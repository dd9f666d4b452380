#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/common/process/file_descriptor.h"
#include "torchps/security/roles.h"

struct x509_st;
struct x509_store_st;

namespace torchps {

// Owning pointers to OpenSSL objects. Include only in source files of torchps/security/.
template <auto Function>
struct OpensslFree {
  template <class Object>
  void operator()(Object* object) const {
    Function(object);
  }
};

using BioPointer = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using X509Pointer = std::unique_ptr<X509, OpensslFree<X509_free>>;
using X509StoreContextPointer = std::unique_ptr<X509_STORE_CTX, OpensslFree<X509_STORE_CTX_free>>;
using GeneralNamesPointer = std::unique_ptr<GENERAL_NAMES, OpensslFree<GENERAL_NAMES_free>>;
using SslContextPointer = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;
using SslPointer = std::unique_ptr<SSL, OpensslFree<SSL_free>>;

// Reads `pem` without a copy; `pem` must outlive the result.
inline BioPointer MakeBio(absl::string_view pem) {
  return BioPointer(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Returns OpenSSL's last error on this thread as text and clears the error queue.
inline std::string TakeOpensslError() {
  const char* const words = ERR_reason_error_string(ERR_peek_last_error());
  const std::string result = words == nullptr ? "unknown error" : words;
  ERR_clear_error();
  return result;
}

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
  PeerVerdict CheckPeer(absl::string_view chain_pem, const std::optional<std::string>& host,
                        absl::Time now) const;

 private:
  CertificateSet() = default;

  // On failure, the verdict's `words` are a relative clause such as "that expired at ...".
  PeerVerdict VerifyChain(const std::vector<x509_st*>& chain, bool of_server, absl::Time now) const;

  std::string certificate_pem_;
  std::string key_pem_;
  Identity identity_;
  absl::Time not_after_;
  x509_store_st* authorities_ = nullptr;
  std::string authority_names_;  // for messages
};

// The certificates of a process, loaded from a directory and reloaded when the files change.
// Invalid sets (half a rotation, a damaged file, an expired certificate) are not loaded: the last
// valid set stays in use, and a log line explains the reason.
//
// Thread-safe. An internal thread checks the files once a second.
class CertificateFiles {
 public:
  struct Options {
    std::string directory;  // see CertificateSet::Read
    Role role = Role::kWorker;
    // Receives a line when new certificates are loaded or rejected. Called on the internal thread.
    LogLine log = IgnoreLine;
    // Returns the current time, for validity checks.
    std::function<absl::Time()> now = [] { return absl::Now(); };
    absl::Duration look_every = absl::Seconds(1);
  };

  // Returns the errors of CertificateSet::Read, or UNAVAILABLE if an in-memory file cannot be
  // created.
  static absl::StatusOr<std::shared_ptr<CertificateFiles>> Open(Options options);

  ~CertificateFiles();

  std::shared_ptr<const CertificateSet> current() const;

  // Returns the path of an in-memory file with the current certificate and key, which only this
  // process can open. gRPC can reload certificates only from files, and this file always contains a
  // valid pair. Updates of the file are atomic.
  const std::string& published_path() const { return published_path_; }

  // Calls CertificateSet::CheckPeer on the current set with the current time.
  PeerVerdict CheckPeer(absl::string_view chain_pem, const std::optional<std::string>& host) const;

  // Checks the files now, like the internal thread. Returns true if new certificates were loaded.
  bool Look();

 private:
  explicit CertificateFiles(Options options);

  absl::Status Publish(const CertificateSet& set);
  void Watch();
  // Returns a text that changes whenever a file changes.
  std::string Fingerprint() const;

  const Options options_;
  FileDescriptor published_;
  std::string published_path_;

  mutable Mutex mutex_;
  CondVar stop_changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const CertificateSet> current_ ABSL_GUARDED_BY(mutex_);

  // Lets only one thread check the files at a time.
  Mutex looking_ ABSL_ACQUIRED_BEFORE(mutex_);
  std::string seen_ ABSL_GUARDED_BY(looking_);
  // Fingerprint of the files that were rejected last. They are reported only if the next check
  // finds them unchanged, because the two files of a pair change one after the other.
  std::string refused_ ABSL_GUARDED_BY(looking_);
  bool has_complained_ ABSL_GUARDED_BY(looking_) = false;
  bool has_warned_ ABSL_GUARDED_BY(looking_) = false;

  std::thread watcher_;
};

}  // namespace torchps
