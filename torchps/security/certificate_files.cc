#include "torchps/security/certificate_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "torchps/common/process/file_descriptor.h"

namespace torchps {
namespace {

// Certificate chains of torchps need about 2 KiB, so a file above this limit is not a certificate.
constexpr size_t kMaxFileBytes = 256 << 10;
constexpr size_t kMaxChain = 8;
// OpenSSL's level for 112 bits. It rejects keys below P-224 or RSA 2048, and SHA-1.
constexpr int kSecurityLevel = 2;

absl::Status Bad(const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(path, " ", what));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, bool is_secret) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const std::string words =
        absl::StrCat("cannot read ", path, ": ", absl::AsciiStrToLower(std::strerror(errno)));
    if (errno == ENOENT || errno == ENOTDIR) {
      return absl::NotFoundError(absl::StrCat(words, "; 'psctl certs' makes ", kAuthorityFile, ", ",
                                              kCertificateFile, " and ", kKeyFile));
    }
    return absl::PermissionDeniedError(words);
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return Bad(path, "is not a regular file");
  }
  if (is_secret && (status.st_mode & S_IRWXO) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " is readable by all users of this machine, who could use it to impersonate this ",
        "process; chmod 600 it, or make new ones with 'psctl certs'"));
  }
  std::string contents;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(file.get(), buffer, sizeof(buffer))) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::PermissionDeniedError(
          absl::StrCat("cannot read ", path, ": ", absl::AsciiStrToLower(std::strerror(errno))));
    }
    contents.append(buffer, got);
    if (contents.size() > kMaxFileBytes) return Bad(path, "is too large for a certificate file");
  }
  return contents;
}

// Returns the certificates in a PEM text, at most kMaxChain, or an empty list if the text is
// malformed.
std::vector<X509Pointer> ParseCertificates(absl::string_view pem) {
  std::vector<X509Pointer> certificates;
  if (pem.empty() || pem.size() > kMaxFileBytes) return certificates;
  const BioPointer bio = MakeBio(pem);
  while (certificates.size() < kMaxChain) {
    X509Pointer certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    certificates.push_back(std::move(certificate));
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end = error == 0 || ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) certificates.clear();
  return certificates;
}

std::vector<X509*> Borrow(const std::vector<X509Pointer>& certificates) {
  std::vector<X509*> borrowed;
  for (const X509Pointer& certificate : certificates) borrowed.push_back(certificate.get());
  return borrowed;
}

std::string GetSubject(X509* certificate) {
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof(name));
  return absl::StrCat("'", name, "'");
}

std::string GetIssuer(X509* certificate) {
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_issuer_name(certificate), NID_commonName, name, sizeof(name));
  // The name comes from an untrusted peer.
  for (char* c = name; *c != '\0'; ++c) {
    if (!absl::ascii_isprint(*c)) *c = '?';
  }
  return absl::StrCat("'", absl::string_view(name).substr(0, 80), "'");
}

absl::Time GetTime(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Readable(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

absl::StatusOr<Identity> GetIdentity(X509* certificate) {
  const GeneralNamesPointer names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      ASN1_STRING_length(uri));
  }
  if (uris.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", uris.size(), " URIs in its subject alternative name; expected one, ",
                     "torchps://JOB/ROLE/NAME"));
  }
  const absl::StatusOr<Identity> identity = ParseIdentity(uris.front());
  if (!identity.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("does not contain a valid identity: ", identity.status().message()));
  }
  return identity;
}

// Returns the names and addresses for which a certificate is valid, for messages.
std::string GetHosts(X509* certificate) {
  const GeneralNamesPointer names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> hosts;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
    const BioPointer text(BIO_new(BIO_s_mem()));
    GENERAL_NAME_print(text.get(), const_cast<GENERAL_NAME*>(name));
    char* data = nullptr;
    const long size = BIO_get_mem_data(text.get(), &data);
    std::string host(data, std::min<long>(size, 80));
    host = host.substr(host.find(':') + 1);  // the text is "DNS:alpha" or "IP Address:10.0.0.1"
    hosts.push_back(std::move(host));
    if (hosts.size() == 8) break;
  }
  return hosts.empty() ? "no host" : absl::StrJoin(hosts, ", ");
}

bool IsFor(X509* certificate, std::string host) {
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  host = host.substr(0, host.find('%'));  // remove the zone of a link-local IPv6 address
  return X509_check_ip_asc(certificate, host.c_str(), 0) == 1 ||
         X509_check_host(certificate, host.data(), host.size(), 0, nullptr) == 1;
}

}  // namespace

CertificateSet::~CertificateSet() { X509_STORE_free(authorities_); }

std::string CertificateSet::DirectoryFor(const std::string& directory, Role role) {
  const std::string own = absl::StrCat(directory, "/", RoleName(role));
  struct stat status {};
  return stat(own.c_str(), &status) == 0 && S_ISDIR(status.st_mode) ? own : directory;
}

absl::StatusOr<std::shared_ptr<const CertificateSet>> CertificateSet::Read(
    const std::string& directory, Role role, absl::Time now) {
  const std::string folder = DirectoryFor(directory, role);
  const std::string authority_path = absl::StrCat(folder, "/", kAuthorityFile);
  const std::string certificate_path = absl::StrCat(folder, "/", kCertificateFile);
  const std::string key_path = absl::StrCat(folder, "/", kKeyFile);
  const absl::StatusOr<std::string> authority = ReadFile(authority_path, /*is_secret=*/false);
  if (!authority.ok()) return authority.status();
  absl::StatusOr<std::string> certificate = ReadFile(certificate_path, /*is_secret=*/false);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadFile(key_path, /*is_secret=*/true);
  if (!key.ok()) return key.status();

  auto set = absl::WrapUnique(new CertificateSet());
  set->certificate_pem_ = *std::move(certificate);
  set->key_pem_ = *std::move(key);
  set->authorities_ = X509_STORE_new();
  std::vector<std::string> names;
  for (const X509Pointer& trusted : ParseCertificates(*authority)) {
    X509_STORE_add_cert(set->authorities_, trusted.get());
    names.push_back(GetSubject(trusted.get()));
  }
  if (names.empty()) return Bad(authority_path, "has no certificate in PEM format");
  set->authority_names_ = absl::StrJoin(names, ", ");

  const std::vector<X509Pointer> chain = ParseCertificates(set->certificate_pem_);
  if (chain.empty()) return Bad(certificate_path, "has no certificate in PEM format");
  const KeyPointer private_key(
      PEM_read_bio_PrivateKey(MakeBio(set->key_pem_).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (private_key == nullptr) return Bad(key_path, "has no private key in PEM format");
  X509* const own = chain.front().get();
  if (X509_check_private_key(own, private_key.get()) != 1) {
    ERR_clear_error();
    return Bad(key_path, absl::StrCat("is not the key of ", certificate_path,
                                      "; replace both with a pair that was made together"));
  }
  const absl::StatusOr<Identity> identity = GetIdentity(own);
  if (!identity.ok()) return Bad(certificate_path, identity.status().message());
  set->identity_ = *identity;
  set->not_after_ = GetTime(X509_get0_notAfter(own));
  if (identity->role != role) {
    return Bad(
        certificate_path,
        absl::StrCat("is ", ToUri(*identity), ", a certificate for the role ",
                     RoleName(identity->role), "; expected one for the role ", RoleName(role)));
  }
  const PeerVerdict valid = set->VerifyChain(Borrow(chain), role == Role::kServer, now);
  if (!valid.ok()) return Bad(certificate_path, absl::StrCat("is a certificate ", valid.words));
  return std::shared_ptr<const CertificateSet>(std::move(set));
}

PeerVerdict CertificateSet::VerifyChain(const std::vector<X509*>& chain, bool of_server,
                                        absl::Time now) const {
  const X509StoreContextPointer context(X509_STORE_CTX_new());
  STACK_OF(X509)* const others = sk_X509_new_null();
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(others, chain[i]);
  X509_STORE_CTX_init(context.get(), authorities_, chain.front(), others);
  X509_VERIFY_PARAM* const parameters = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(parameters, absl::ToTimeT(now));
  X509_VERIFY_PARAM_set_auth_level(parameters, kSecurityLevel);
  X509_VERIFY_PARAM_set_purpose(parameters,
                                of_server ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  const bool good = X509_verify_cert(context.get()) == 1;
  const int error = X509_STORE_CTX_get_error(context.get());
  const bool is_own = X509_STORE_CTX_get_error_depth(context.get()) == 0;
  sk_X509_free(others);
  ERR_clear_error();
  if (good) return {};
  X509* const leaf = chain.front();
  const char* const whose = is_own ? "that" : "whose authority's certificate";
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return {PeerFault::kExpired,
              absl::StrCat(
                  whose, " expired",
                  is_own ? absl::StrCat(" at ", Readable(GetTime(X509_get0_notAfter(leaf)))) : "",
                  "; make new ones with 'psctl certs'"),
              {}};
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return {PeerFault::kNotYetValid,
              absl::StrCat(
                  whose, " is not valid yet",
                  is_own ? absl::StrCat(", but from ", Readable(GetTime(X509_get0_notBefore(leaf))))
                         : "",
                  "; is this machine's clock right (", Readable(now), ")?"),
              {}};
    case X509_V_ERR_INVALID_PURPOSE:
      return {PeerFault::kWrongRole,
              absl::StrCat("that is not made for ", of_server ? "a server" : "a client"),
              {}};
    default:
      return {PeerFault::kOtherAuthority,
              absl::StrCat("of another authority: signed by ", GetIssuer(leaf), ", not by ",
                           authority_names_, " of ", kAuthorityFile, " (",
                           X509_verify_cert_error_string(error), ")"),
              {}};
  }
}

PeerVerdict CertificateSet::CheckPeer(absl::string_view chain_pem,
                                      const std::optional<std::string>& host,
                                      absl::Time now) const {
  const auto fault = [](PeerFault what, std::string words) {
    return PeerVerdict{what, std::move(words), {}};
  };
  if (chain_pem.empty()) {
    return fault(PeerFault::kNoCertificate,
                 absl::StrCat("has no certificate; expected one signed by ", authority_names_));
  }
  const std::vector<X509Pointer> chain = ParseCertificates(chain_pem);
  if (chain.empty()) return fault(PeerFault::kUnreadable, "has a certificate that cannot be read");
  X509* const leaf = chain.front().get();
  const absl::StatusOr<Identity> identity = GetIdentity(leaf);
  // The identity is not verified yet, but the message names it to help the user find the
  // certificate.
  const std::string name = identity.ok() ? absl::StrCat(" ", ToUri(*identity)) : "";
  // The role is checked before the chain, because this message names the role. VerifyChain() would
  // only say that the certificate is not made for a server.
  if (host.has_value() && identity.ok() && identity->role != Role::kServer) {
    return fault(PeerFault::kWrongRole,
                 absl::StrCat("has the certificate", name, " for the role ",
                              RoleName(identity->role), "; expected the role server"));
  }
  PeerVerdict valid = VerifyChain(Borrow(chain), host.has_value(), now);
  if (!valid.ok()) {
    return fault(valid.fault, absl::StrCat("has a certificate", name, " ", valid.words));
  }
  if (!identity.ok()) {
    return fault(PeerFault::kNoIdentity,
                 absl::StrCat("has a certificate that ", identity.status().message()));
  }
  if (identity->job != identity_.job) {
    return fault(PeerFault::kOtherJob,
                 absl::StrCat("has the certificate", name,
                              ", which belongs to another job; expected '", identity_.job, "'"));
  }
  if (host.has_value() && !IsFor(leaf, *host)) {
    return fault(PeerFault::kWrongName,
                 absl::StrCat("has a certificate for ", GetHosts(leaf), ", not for '", *host,
                              "'; name that in 'psctl certs --hosts='"));
  }
  return PeerVerdict{PeerFault::kNone, "", *identity};
}

namespace {

// Remaining validity at which the operator is warned.
constexpr absl::Duration kWarnBefore = absl::Hours(72);

}  // namespace

CertificateFiles::CertificateFiles(Options options) : options_(std::move(options)) {}

absl::StatusOr<std::shared_ptr<CertificateFiles>> CertificateFiles::Open(Options options) {
  auto files = absl::WrapUnique(new CertificateFiles(std::move(options)));
  const absl::StatusOr<std::shared_ptr<const CertificateSet>> set =
      CertificateSet::Read(files->options_.directory, files->options_.role, files->options_.now());
  if (!set.ok()) return set.status();
  {
    MutexLock looking(&files->looking_);
    files->seen_ = files->Fingerprint();
  }
  if (absl::Status status = files->Publish(**set); !status.ok()) return status;
  {
    MutexLock lock(&files->mutex_);
    files->current_ = *set;
  }
  files->watcher_ = std::thread([raw = files.get()] { raw->Watch(); });
  return std::shared_ptr<CertificateFiles>(std::move(files));
}

CertificateFiles::~CertificateFiles() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    stop_changed_.SignalAll();
  }
  if (watcher_.joinable()) watcher_.join();
}

std::shared_ptr<const CertificateSet> CertificateFiles::current() const {
  MutexLock lock(&mutex_);
  return current_;
}

PeerVerdict CertificateFiles::CheckPeer(absl::string_view chain_pem,
                                        const std::optional<std::string>& host) const {
  return current()->CheckPeer(chain_pem, host, options_.now());
}

absl::Status CertificateFiles::Publish(const CertificateSet& set) {
  const auto failed = [] {
    return absl::UnavailableError(
        absl::StrCat("cannot hold the certificate in memory: ", std::strerror(errno)));
  };
  FileDescriptor file(memfd_create("torchps-certificate", MFD_CLOEXEC));
  if (file.get() < 0 || fchmod(file.get(), 0600) != 0) return failed();
  const std::string contents = absl::StrCat(set.key_pem(), "\n", set.certificate_pem());
  if (write(file.get(), contents.data(), contents.size()) !=
      static_cast<ssize_t>(contents.size())) {
    return failed();
  }
  if (published_.get() < 0) {
    published_ = std::move(file);
    published_path_ = absl::StrCat("/proc/self/fd/", published_.get());
    return absl::OkStatus();
  }
  // Atomically redirects the published path to the new contents.
  if (dup3(file.get(), published_.get(), O_CLOEXEC) < 0) return failed();
  return absl::OkStatus();
}

std::string CertificateFiles::Fingerprint() const {
  const std::string folder = CertificateSet::DirectoryFor(options_.directory, options_.role);
  std::string fingerprint;
  for (const char* name : {kAuthorityFile, kCertificateFile, kKeyFile}) {
    struct stat status {};
    if (stat(absl::StrCat(folder, "/", name).c_str(), &status) != 0) status = {};
    absl::StrAppend(&fingerprint, status.st_ino, " ", status.st_size, " ", status.st_mtim.tv_sec,
                    " ", status.st_mtim.tv_nsec, " ", status.st_mode, "\n");
  }
  return fingerprint;
}

bool CertificateFiles::Look() {
  MutexLock looking(&looking_);
  std::string fingerprint = Fingerprint();
  if (fingerprint == seen_) {
    const absl::Duration left = current()->not_after() - options_.now();
    if (!has_warned_ && left < kWarnBefore) {
      has_warned_ = true;
      options_.log(absl::StrCat("the certificate ", ToUri(current()->identity()),
                                left <= absl::ZeroDuration() ? " has expired" : " expires", " at ",
                                absl::FormatTime(current()->not_after()),
                                "; create new ones with 'psctl certs', no restart is needed"));
    }
    return false;
  }
  const absl::StatusOr<std::shared_ptr<const CertificateSet>> set =
      CertificateSet::Read(options_.directory, options_.role, options_.now());
  absl::Status status = set.status();
  if (status.ok() && (*set)->identity().job != current()->identity().job) {
    status =
        absl::FailedPreconditionError(absl::StrCat("they belong to job '", (*set)->identity().job,
                                                   "', not '", current()->identity().job, "'"));
  }
  if (status.ok()) status = Publish(**set);
  if (!status.ok()) {
    const bool again = refused_ == fingerprint;
    if (again && !has_complained_) {
      options_.log(absl::StrCat("keeps its certificate because the new files cannot be used: ",
                                status.message()));
    }
    has_complained_ = again;
    refused_ = std::move(fingerprint);
    return false;
  }
  seen_ = std::move(fingerprint);
  refused_.clear();
  has_complained_ = false;
  has_warned_ = false;
  {
    MutexLock lock(&mutex_);
    current_ = *set;
  }
  options_.log(absl::StrCat("now uses the new certificate ", ToUri((*set)->identity()),
                            ", valid until ", absl::FormatTime((*set)->not_after())));
  return true;
}

void CertificateFiles::Watch() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!stop_) stop_changed_.WaitFor(&mutex_, options_.look_every);
      if (stop_) return;
    }
    Look();
  }
}

}  // namespace torchps
