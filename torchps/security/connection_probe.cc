#include "torchps/security/connection_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "torchps/common/process/file_descriptor.h"
#include "torchps/security/certificate_files.h"
#include "torchps/security/protocol_sniffer.h"

namespace torchps {
namespace {

// The client's connection preface and an empty SETTINGS frame (RFC 9113, 3.4 and 6.5).
constexpr absl::string_view kPrefaceAndSettings(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 24 + 9);
constexpr char kSettingsFrameType = 4;
constexpr unsigned char kHttp2[] = {2, 'h', '2'};
// Large enough for any rejection text.
constexpr size_t kAnswerBytes = 1024;

std::string Words(int error) { return absl::AsciiStrToLower(std::strerror(error)); }

bool WaitFor(int fd, short events, absl::Duration timeout) {
  pollfd entry{fd, events, 0};
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  return poll(&entry, 1, std::max(0, milliseconds)) == 1;
}

// Returns an empty string on success, otherwise the reason.
std::string Connect(int fd, const addrinfo& to, absl::Duration timeout) {
  if (fd < 0) return Words(errno);
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return Words(errno);
  if (!WaitFor(fd, POLLOUT, timeout)) return "no answer to the connection request";
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? "" : Words(error);
}

// Splits an address into the host name, as used in certificates, and the port.
std::pair<std::string, std::string> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, ""};
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {std::move(host), address.substr(colon + 1)};
}

// Returns a connection, or an empty descriptor and sets `*reason`.
FileDescriptor Dial(const std::string& address, absl::Duration timeout, std::string* reason) {
  const std::pair<std::string, std::string> parts = Split(address);
  if (parts.second.empty()) {
    *reason = "no port in the address";
    return FileDescriptor();
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.first.c_str(), parts.second.c_str(), &hints, &found);
  if (error != 0) {
    *reason = error == EAI_NONAME ? "unknown host" : gai_strerror(error);
    return FileDescriptor();
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
    FileDescriptor fd(
        socket(to->ai_family, to->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to->ai_protocol));
    *reason = Connect(fd.get(), *to, timeout);
    if (reason->empty()) return fd;
  }
  return FileDescriptor();
}

bool BeginsWithSettings(absl::string_view answer) {
  return answer.size() >= kHttp2FrameHeaderBytes && answer[0] == 0 &&
         answer[3] == kSettingsFrameType;
}

ProbeResult ConverseInTheClear(int fd, absl::Duration timeout) {
  if (send(fd, kPrefaceAndSettings.data(), kPrefaceAndSettings.size(), MSG_NOSIGNAL) < 0) {
    return {ProbeResult::kClosed, "closes the connection"};
  }
  if (!WaitFor(fd, POLLIN, timeout)) return {ProbeResult::kSilent, "accepts, but does not answer"};
  char bytes[kAnswerBytes];
  const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
  if (got <= 0) return {ProbeResult::kClosed, "closes the connection"};
  const absl::string_view answer(bytes, got);
  if (BeginsWithSettings(answer)) return {ProbeResult::kHttp2, ""};
  if (const std::optional<std::string> reason = ParseGoAwayFrame(answer)) {
    return {ProbeResult::kRefused, absl::StrCat("refuses this client: ", *reason)};
  }
  if (SniffProtocol(answer) == Protocol::kTlsAlert) {
    return {ProbeResult::kRefused, "speaks TLS only; start this program with --certs=DIR"};
  }
  return {ProbeResult::kForeign, "answers in another protocol"};
}

// Blocks SIGPIPE, which OpenSSL's writes to closed sockets would raise.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec none{0, 0};
    while (sigtimedwait(&pipe_, nullptr, &none) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
};

// A TLS connection that presents this process's certificate. The caller checks the peer's
// certificate after the handshake.
class TlsConversation {
 public:
  TlsConversation(int fd, const CertificateSet& own, absl::Time deadline)
      : fd_(fd), deadline_(deadline), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_alpn_protos(context_.get(), kHttp2, sizeof(kHttp2));
    const X509Pointer certificate(
        PEM_read_bio_X509(MakeBio(own.certificate_pem()).get(), nullptr, nullptr, nullptr));
    const KeyPointer key(
        PEM_read_bio_PrivateKey(MakeBio(own.key_pem()).get(), nullptr, nullptr, nullptr));
    SSL_CTX_use_certificate(context_.get(), certificate.get());
    SSL_CTX_use_PrivateKey(context_.get(), key.get());
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), fd_);
    ERR_clear_error();
  }

  bool Handshake() {
    return Do([this] { return SSL_connect(ssl_.get()); }) == 1;
  }
  bool Write(absl::string_view bytes) {
    return Do([&] { return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())); }) >
           0;
  }
  // Returns 0 or less if nothing was received.
  int Read(char* bytes, int size) {
    return Do([&] { return SSL_read(ssl_.get(), bytes, size); });
  }
  bool timed_out() const { return timed_out_; }
  // Returns true if the peer closed the connection without a TLS alert.
  bool closed() const { return closed_; }

  std::string PeerChain() const {
    const BioPointer bio(BIO_new(BIO_s_mem()));
    STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl_.get());
    for (int i = 0; chain != nullptr && i < sk_X509_num(chain); ++i) {
      PEM_write_bio_X509(bio.get(), sk_X509_value(chain, i));
    }
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return std::string(data, size);
  }

 private:
  template <class Operation>
  int Do(Operation operation) {
    while (true) {
      ERR_clear_error();
      const int result = operation();
      if (result > 0) return result;
      const int error = SSL_get_error(ssl_.get(), result);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
        closed_ = error == SSL_ERROR_SYSCALL ||
                  ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
        return result;
      }
      if (!WaitFor(fd_, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline_ - absl::Now())) {
        timed_out_ = true;
        return -1;
      }
    }
  }

  const int fd_;
  const absl::Time deadline_;
  const SslContextPointer context_;
  SslPointer ssl_;
  bool timed_out_ = false;
  bool closed_ = false;
};

ServerAlert AlertFor(PeerFault fault) {
  switch (fault) {
    case PeerFault::kOtherAuthority:
      return ServerAlert::kUnknownAuthority;
    case PeerFault::kExpired:
    case PeerFault::kNotYetValid:
      return ServerAlert::kExpired;
    case PeerFault::kWrongName:
      return ServerAlert::kWrongName;
    default:
      return ServerAlert::kOther;
  }
}

void TellServer(const std::string& address, PeerFault fault, absl::Duration timeout) {
  std::string reason;
  const FileDescriptor fd = Dial(address, timeout, &reason);
  if (fd.get() < 0) return;
  const std::string record = AlertRecord(AlertFor(fault));
  if (send(fd.get(), record.data(), record.size(), MSG_NOSIGNAL) < 0) return;
  // Keep the connection open until the server has read the alert.
  WaitFor(fd.get(), POLLIN, timeout);
}

ProbeResult ConverseByTls(int fd, const std::string& address, const CertificateFiles& certificates,
                          absl::Duration timeout) {
  const NoPipeSignal no_pipe_signal;
  const std::shared_ptr<const CertificateSet> own = certificates.current();
  const std::string host = Split(address).first;
  TlsConversation conversation(fd, *own, absl::Now() + timeout);
  if (!conversation.Handshake()) {
    if (conversation.timed_out()) return {ProbeResult::kSilent, "accepts, but does not answer"};
    const std::string words = TakeOpensslError();
    std::string reason;
    const FileDescriptor again = Dial(address, timeout, &reason);
    if (again.get() >= 0 && ConverseInTheClear(again.get(), timeout).kind == ProbeResult::kHttp2) {
      return {ProbeResult::kRefused,
              "speaks without TLS; start it with --certs=DIR, or this program without"};
    }
    if (conversation.closed()) {
      return {ProbeResult::kSilent, "closes connections before the TLS handshake ends"};
    }
    return {ProbeResult::kForeign, absl::StrCat("ends the TLS handshake: ", words)};
  }
  const PeerVerdict verdict = certificates.CheckPeer(conversation.PeerChain(), host);
  if (!verdict.ok()) {
    TellServer(address, verdict.fault, timeout);
    return {ProbeResult::kRefused, verdict.words};
  }
  char bytes[kAnswerBytes];
  const int got =
      conversation.Write(kPrefaceAndSettings) ? conversation.Read(bytes, sizeof(bytes)) : 0;
  ERR_clear_error();
  if (got > 0) {
    return BeginsWithSettings({bytes, static_cast<size_t>(got)})
               ? ProbeResult{ProbeResult::kHttp2, ""}
               : ProbeResult{ProbeResult::kForeign, "answers in another protocol"};
  }
  if (conversation.timed_out()) return {ProbeResult::kSilent, "accepts, but does not answer"};
  return {ProbeResult::kRefused, absl::StrCat("refuses the certificate ", ToUri(own->identity()),
                                              " of this program; its standard error says why")};
}

}  // namespace

ProbeResult ProbeServer(const std::string& address, const CertificateFiles* certificates,
                        absl::Duration timeout) {
  ProbeResult result;
  const FileDescriptor fd = Dial(address, timeout, &result.reason);
  if (fd.get() < 0) return result;
  return certificates == nullptr ? ConverseInTheClear(fd.get(), timeout)
                                 : ConverseByTls(fd.get(), address, *certificates, timeout);
}

}  // namespace torchps
