#include "torchps/security/credentials.h"

#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "torchps/common/mutex.h"
#include "torchps/security/log_throttle.h"

namespace torchps {
namespace {

namespace tls = grpc::experimental;

// gRPC's poll interval for certificate files; this is the minimum.
constexpr unsigned kWatchSeconds = 1;

std::string Text(grpc::string_ref text) { return {text.data(), text.size()}; }

// The peers to accept.
enum class Peers {
  kClients,  // any role of the same job
  kServers,  // a server with a certificate for the called name
  kWorkers,  // a worker that accepts connections; its certificate names no host
};

// Decides for gRPC if a connection to a peer may proceed.
class PeerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  PeerVerifier(std::shared_ptr<CertificateFiles> files, Peers peers, LogLine log)
      : files_(std::move(files)), peers_(peers), log_(std::move(log)) {
    MutexLock lock(&lifetime_);
  }
  // One of gRPC's threads may release the last reference. gRPC's reference counter is invisible to
  // ThreadSanitizer; the lock shows that construction happens before destruction.
  ~PeerVerifier() override { MutexLock lock(&lifetime_); }

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    // Puts the certificate with the proven key first. On the server side, OpenSSL's chain omits
    // this certificate and starts with arbitrary certificates that the client sent.
    const std::string chain =
        absl::StrCat(Text(request->peer_cert()), Text(request->peer_cert_full_chain()));
    std::optional<std::string> host;
    // gRPC has removed the port and the brackets of an IPv6 address.
    if (peers_ == Peers::kServers) host = Text(request->target_name());
    PeerVerdict peer = files_->CheckPeer(chain, host);
    if (peers_ == Peers::kWorkers && peer.ok() && peer.identity.role != Role::kWorker) {
      peer.fault = PeerFault::kWrongRole;
      peer.words = absl::StrCat("has the certificate ", ToUri(peer.identity), " for the role ",
                                RoleName(peer.identity.role), "; expected the role worker");
    }
    *status =
        peer.ok() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, peer.words);
    if (!peer.ok() && peers_ == Peers::kClients) {
      log_.Log(absl::StrCat("refused a client: it ", peer.words), absl::Now());
    }
    return true;
  }

  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  Mutex lifetime_;
  const std::shared_ptr<CertificateFiles> files_;
  const Peers peers_;
  LogThrottle log_;
};

// Key and certificate are in the same file.
std::shared_ptr<tls::CertificateProviderInterface> Provider(const CertificateFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(
      files.published_path(), files.published_path(), kWatchSeconds);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(
    std::shared_ptr<CertificateFiles> files, LogLine log) {
  tls::TlsServerCredentialsOptions options(Provider(*files));
  options.watch_identity_key_cert_pairs();
  // "DONT_VERIFY" only turns off gRPC's verification. PeerVerifier verifies the certificate and
  // rejects the connection on failure.
  options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<PeerVerifier>(
      std::move(files), Peers::kClients, std::move(log)));
  return tls::TlsServerCredentials(options);
}

namespace {

std::shared_ptr<grpc::ChannelCredentials> TlsCredentialsFor(std::shared_ptr<CertificateFiles> files,
                                                            Peers peers) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Provider(*files));
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);
  // PeerVerifier checked the name when connecting, and all calls use the channel's name.
  options.set_check_call_host(false);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<PeerVerifier>(
      std::move(files), peers, [](const std::string&) {}));
  return tls::TlsCredentials(options);
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(
    std::shared_ptr<CertificateFiles> files) {
  return TlsCredentialsFor(std::move(files), Peers::kServers);
}

std::shared_ptr<grpc::ChannelCredentials> MemberCredentialsFor(
    const std::shared_ptr<CertificateFiles>& files) {
  return files == nullptr ? grpc::InsecureChannelCredentials()
                          : TlsCredentialsFor(files, Peers::kWorkers);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::shared_ptr<CertificateFiles>& files) {
  return files == nullptr ? grpc::InsecureChannelCredentials() : TlsChannelCredentials(files);
}

absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(const std::string& directory,
                                                                   Role role, LogLine log) {
  if (directory.empty()) return std::shared_ptr<CertificateFiles>();
  CertificateFiles::Options options;
  options.directory = directory;
  options.role = role;
  options.log = std::move(log);
  return CertificateFiles::Open(std::move(options));
}

}  // namespace torchps
