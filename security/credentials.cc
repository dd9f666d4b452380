#include "security/credentials.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "security/log_throttle.h"

namespace torchps {
namespace {

namespace tls = grpc::experimental;

// How soon gRPC sees that the file it was given has changed; its least.
constexpr unsigned kWatchSeconds = 1;

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// Who a peer has to be.
enum class Peers {
  kClients,  // any role of our job
  kServers,  // a server, by the name under which it was called
  kWorkers,  // a worker that listens: its certificate names no host
};

// gRPC's question whether to go on with a peer.
class PeerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  PeerVerifier(std::shared_ptr<CertificateFiles> files, Peers peers,
               std::function<void(const std::string&)> log)
      : files_(std::move(files)), peers_(peers), log_(std::move(log)) {
    MutexLock lock(&lifetime_);
  }
  // One of gRPC's threads may be the last to use it. gRPC counts its users in code that
  // ThreadSanitizer does not see; the lock tells that the end comes after the beginning.
  ~PeerVerifier() override { MutexLock lock(&lifetime_); }

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    // The one whose key the handshake has proved first. In a server OpenSSL's chain is without it,
    // and begins with whatever the client likes to show behind it.
    const std::string chain =
        absl::StrCat(View(request->peer_cert()), View(request->peer_cert_full_chain()));
    absl::optional<std::string> host;
    // gRPC has cut the port off, and the brackets of an IPv6 address.
    if (peers_ == Peers::kServers) host = std::string(View(request->target_name()));
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

// Both files are one: each reader takes what is his.
std::shared_ptr<tls::CertificateProviderInterface> Provider(const CertificateFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(
      files.published_path(), files.published_path(), kWatchSeconds);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(
    std::shared_ptr<CertificateFiles> files, std::function<void(const std::string& line)> log) {
  tls::TlsServerCredentialsOptions options(Provider(*files));
  options.watch_identity_key_cert_pairs();
  // "Don't verify" is about gRPC: PeerVerifier does, and without its consent there is no
  // connection.
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
  // The name was checked when the connection was made, and every call has the channel's.
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

absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(
    const std::string& directory, Role role, std::function<void(const std::string& line)> log) {
  if (directory.empty()) return std::shared_ptr<CertificateFiles>();
  CertificateFiles::Options options;
  options.directory = directory;
  options.role = role;
  options.log = std::move(log);
  return CertificateFiles::Open(std::move(options));
}

}  // namespace torchps
