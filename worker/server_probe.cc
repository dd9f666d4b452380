#include "worker/server_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/file_descriptor.h"

namespace torchps {
namespace {

// The client's connection preface and an empty SETTINGS frame (RFC 9113, 3.4 and 6.5).
constexpr absl::string_view kPreface(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 24 + 9);
constexpr int kSettingsFrameType = 4;

std::string Words(int error) { return absl::AsciiStrToLower(std::strerror(error)); }

bool WaitFor(int fd, short events, absl::Duration timeout) {
  pollfd entry{fd, events, 0};
  return poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 1;
}

// Empty when connected, else why not.
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

ProbeResult Converse(int fd, absl::Duration timeout) {
  if (send(fd, kPreface.data(), kPreface.size(), MSG_NOSIGNAL) < 0) {
    return {ProbeResult::kForeign, "closes the connection"};
  }
  if (!WaitFor(fd, POLLIN, timeout)) return {ProbeResult::kSilent, "accepts, but does not answer"};
  unsigned char answer[9];  // an HTTP/2 frame header: length (3), type, flags, stream (4)
  const ssize_t got = recv(fd, answer, sizeof(answer), 0);
  if (got <= 0) return {ProbeResult::kForeign, "closes the connection"};
  if (got == sizeof(answer) && answer[0] == 0 && answer[3] == kSettingsFrameType) {
    return {ProbeResult::kHttp2, ""};
  }
  return {ProbeResult::kForeign, "answers in another protocol"};
}

}  // namespace

ProbeResult ProbeServer(const std::string& address, absl::Duration timeout) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {ProbeResult::kUnreachable, "no port in the address"};
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) {
    return {ProbeResult::kUnreachable, error == EAI_NONAME ? "unknown host" : gai_strerror(error)};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, &freeaddrinfo);
  ProbeResult result;
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
    const FileDescriptor fd(
        socket(to->ai_family, to->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to->ai_protocol));
    result.reason = Connect(fd.get(), *to, timeout);
    if (result.reason.empty()) return Converse(fd.get(), timeout);
  }
  return result;
}

}  // namespace torchps
