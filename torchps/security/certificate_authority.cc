#include "torchps/security/certificate_authority.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/process/file_descriptor.h"
#include "torchps/security/certificate_files.h"

namespace torchps {
namespace {

// Random serial numbers of this size are unique and unpredictable.
constexpr int kSerialBytes = 16;
constexpr int kVersion3 = 2;
constexpr size_t kLongestHost = 253;

std::string Pem(X509* certificate) {
  const BioPointer bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

std::string Pem(EVP_PKEY* key) {
  const BioPointer bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

absl::Status OpensslFailed(absl::string_view what) {
  return absl::InternalError(absl::StrCat("OpenSSL cannot ", what, ": ", TakeOpensslError()));
}

// Creates an unsigned certificate with the fields that all certificates share.
X509Pointer NewCertificate(EVP_PKEY* key, const std::string& name, absl::Time not_before,
                           absl::Time not_after) {
  X509Pointer certificate(X509_new());
  unsigned char serial[kSerialBytes];
  RAND_bytes(serial, kSerialBytes);
  // Clear the sign bit, because serial numbers are positive. Set the next bit, so that all have the
  // full length.
  serial[0] = static_cast<unsigned char>((serial[0] & 0x7f) | 0x40);
  BIGNUM* const number = BN_bin2bn(serial, kSerialBytes, nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get()));
  BN_free(number);
  X509_set_version(certificate.get(), kVersion3);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(not_before));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(not_after));
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
  return certificate;
}

// `value` must be a constant and never user input, because OpenSSL parses it as a configuration
// language.
bool AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool IsHostName(const std::string& host) {
  if (host.empty() || host.size() > kLongestHost) return false;
  for (const char c : host) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_') return false;
  }
  return true;
}

GENERAL_NAME* TextName(int type, const std::string& text) {
  GENERAL_NAME* const name = GENERAL_NAME_new();
  ASN1_IA5STRING* const string = ASN1_IA5STRING_new();
  ASN1_STRING_set(string, text.data(), static_cast<int>(text.size()));
  GENERAL_NAME_set0_value(name, type, string);
  return name;
}

// Returns a DNS name or an IP address, or null if `host` is neither.
GENERAL_NAME* HostName(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  int size = 0;
  if (inet_pton(AF_INET, host.c_str(), address) == 1) {
    size = sizeof(in_addr);
  } else if (inet_pton(AF_INET6, host.c_str(), address) == 1) {
    size = sizeof(in6_addr);
  }
  if (size == 0) return IsHostName(host) ? TextName(GEN_DNS, host) : nullptr;
  GENERAL_NAME* const name = GENERAL_NAME_new();
  ASN1_OCTET_STRING* const string = ASN1_OCTET_STRING_new();
  ASN1_OCTET_STRING_set(string, address, size);
  GENERAL_NAME_set0_value(name, GEN_IPADD, string);
  return name;
}

absl::Status System(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", absl::AsciiStrToLower(std::strerror(errno))));
}

absl::Status WriteFile(const std::string& path, const std::string& contents, mode_t mode) {
  const std::string temporary = absl::StrCat(path, ".new");
  unlink(temporary.c_str());
  FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file.get() < 0) return System(temporary);
  for (size_t at = 0; at < contents.size();) {
    const ssize_t written = write(file.get(), contents.data() + at, contents.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return System(temporary);
    at += written;
  }
  if (fsync(file.get()) != 0) return System(temporary);
  file.Close();
  if (rename(temporary.c_str(), path.c_str()) != 0) return System(path);
  return absl::OkStatus();
}

absl::Status MakeDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) return System(directory);
  return absl::OkStatus();
}

}  // namespace

CertificateAuthority::~CertificateAuthority() {
  EVP_PKEY_free(key_);
  X509_free(certificate_);
}

absl::StatusOr<std::unique_ptr<CertificateAuthority>> CertificateAuthority::Create(
    const std::string& job, absl::Time not_before, absl::Time not_after) {
  const absl::Status valid = CheckIdentity({job, Role::kServer, "any"});
  if (!valid.ok()) return valid;
  auto authority = absl::WrapUnique(new CertificateAuthority());
  authority->key_ = EVP_EC_gen("P-256");
  if (authority->key_ == nullptr) return OpensslFailed("make a key");
  // A random suffix distinguishes two authorities of the same job in messages.
  unsigned char mark[3];
  RAND_bytes(mark, sizeof(mark));
  const std::string name =
      absl::StrCat("torchps ", job.substr(0, 48), " ",
                   absl::BytesToHexString({reinterpret_cast<const char*>(mark), sizeof(mark)}));
  authority->certificate_ = NewCertificate(authority->key_, name, not_before, not_after).release();
  X509* const certificate = authority->certificate_;
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  if (!AddExtension(certificate, certificate, NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(certificate, certificate, NID_subject_key_identifier, "hash") ||
      X509_sign(certificate, authority->key_, EVP_sha256()) == 0) {
    return OpensslFailed("sign the authority's certificate");
  }
  authority->certificate_pem_ = Pem(certificate);
  return authority;
}

absl::StatusOr<std::unique_ptr<CertificateAuthority>> CertificateAuthority::Load(
    const std::string& directory) {
  const std::string paths[] = {absl::StrCat(directory, "/", kAuthorityFile),
                               absl::StrCat(directory, "/", kKeyFile)};
  std::string contents[2];
  for (int i = 0; i < 2; ++i) {
    errno = 0;
    std::ifstream file(paths[i]);
    std::ostringstream text;
    if (!file && errno != ENOENT) {
      return absl::PermissionDeniedError(absl::StrCat("cannot read ", paths[i], ": ",
                                                      absl::AsciiStrToLower(std::strerror(errno))));
    }
    // Save() writes the key first, so a key without a certificate has not signed anything.
    if (!file && i == 0) return absl::NotFoundError(absl::StrCat("there is no ", paths[i]));
    if (!file) {
      return absl::FailedPreconditionError(absl::StrCat(
          "there is ", paths[0], ", but the signing key ", paths[1],
          " is missing; restore it, or remove ", paths[0],
          " to create a new authority, which processes with old certificates do not trust"));
    }
    text << file.rdbuf();
    contents[i] = text.str();
  }
  auto authority = absl::WrapUnique(new CertificateAuthority());
  authority->certificate_ =
      PEM_read_bio_X509(MakeBio(contents[0]).get(), nullptr, nullptr, nullptr);
  authority->key_ = PEM_read_bio_PrivateKey(MakeBio(contents[1]).get(), nullptr, nullptr, nullptr);
  ERR_clear_error();
  if (authority->certificate_ == nullptr || authority->key_ == nullptr ||
      X509_check_private_key(authority->certificate_, authority->key_) != 1) {
    ERR_clear_error();
    return absl::FailedPreconditionError(
        absl::StrCat(paths[0], " and ", paths[1],
                     " are not a certificate and its key; remove both to create a new authority"));
  }
  authority->certificate_pem_ = Pem(authority->certificate_);
  return authority;
}

absl::Status CertificateAuthority::Save(const std::string& directory) const {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return System(directory);
  const absl::Status written = WriteFile(absl::StrCat(directory, "/", kKeyFile), Pem(key_), 0600);
  if (!written.ok()) return written;
  return WriteFile(absl::StrCat(directory, "/", kAuthorityFile), certificate_pem_, 0644);
}

absl::StatusOr<IssuedCertificate> CertificateAuthority::Issue(const Request& request) const {
  const absl::Status valid = CheckIdentity(request.identity);
  if (!valid.ok()) return valid;
  const bool is_server = request.identity.role == Role::kServer;
  if (is_server && request.hosts.empty()) {
    return absl::InvalidArgumentError(
        "a server's certificate needs at least one host name or address");
  }
  const GeneralNamesPointer names(sk_GENERAL_NAME_new_null());
  sk_GENERAL_NAME_push(names.get(), TextName(GEN_URI, ToUri(request.identity)));
  for (const std::string& host : request.hosts) {
    GENERAL_NAME* const name = HostName(host);
    if (name == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", host, "' is neither a host's name nor an address; expected names or ",
                       "addresses without ports, as in alpha,10.0.0.2"));
    }
    sk_GENERAL_NAME_push(names.get(), name);
  }
  const KeyPointer key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslFailed("make a key");
  const X509Pointer certificate = NewCertificate(
      key.get(),
      absl::StrCat(RoleName(request.identity.role), " ", request.identity.name.substr(0, 48)),
      request.not_before, request.not_after);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate_));
  if (!AddExtension(certificate.get(), certificate_, NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(certificate.get(), certificate_, NID_key_usage, "critical,digitalSignature") ||
      // Servers are also clients of other servers.
      !AddExtension(certificate.get(), certificate_, NID_ext_key_usage,
                    is_server ? "serverAuth,clientAuth" : "clientAuth") ||
      !AddExtension(certificate.get(), certificate_, NID_subject_key_identifier, "hash") ||
      !AddExtension(certificate.get(), certificate_, NID_authority_key_identifier, "keyid") ||
      X509_add1_ext_i2d(certificate.get(), NID_subject_alt_name, names.get(), /*crit=*/0, 0) != 1 ||
      X509_sign(certificate.get(), key_, EVP_sha256()) == 0) {
    return OpensslFailed("sign a certificate");
  }
  return IssuedCertificate{Pem(certificate.get()), Pem(key.get())};
}

absl::Status WriteCertificates(const std::string& directory, const std::string& authority_pem,
                               const IssuedCertificate& issued) {
  if (absl::Status status = MakeDirectory(directory); !status.ok()) return status;
  absl::Status status =
      WriteFile(absl::StrCat(directory, "/", kAuthorityFile), authority_pem, 0644);
  if (!status.ok()) return status;
  status = WriteFile(absl::StrCat(directory, "/", kKeyFile), issued.key_pem, 0600);
  if (!status.ok()) return status;
  return WriteFile(absl::StrCat(directory, "/", kCertificateFile), issued.certificate_pem, 0644);
}

}  // namespace torchps
