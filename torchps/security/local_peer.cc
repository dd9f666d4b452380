#include "torchps/security/local_peer.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/process/file_descriptor.h"

namespace torchps {
namespace {

// The number of valid user ids; the largest 32-bit value means "no user".
constexpr uint64_t kUsers = 0xFFFFFFFF;
// The kernel's default, for containers without access to /proc.
constexpr uid_t kDefaultOverflow = 65534;

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 question;
};

absl::Status Unknown(absl::string_view why) {
  return absl::UnauthenticatedError(
      absl::StrCat("cannot determine the owner of the connection: ", why));
}

absl::Status SystemError() { return Unknown(std::strerror(errno)); }

// Converts an address to the form used in the kernel's tables.
bool Split(const sockaddr_storage& address, uint16_t* port, uint32_t host[4]) {
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    *port = four.sin_port;
    std::memcpy(host, &four.sin_addr, sizeof(four.sin_addr));
    return true;
  }
  if (address.ss_family != AF_INET6) return false;
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  *port = six.sin6_port;
  std::memcpy(host, &six.sin6_addr, sizeof(six.sin6_addr));
  return true;
}

// Returns an empty string if the file cannot be read.
std::string GetContents(const char* path) {
  std::ostringstream contents;
  contents << std::ifstream(path).rdbuf();
  return contents.str();
}

}  // namespace

absl::StatusOr<uid_t> OwnerOfPeer(int socket_fd) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_size = sizeof(here);
  socklen_t there_size = sizeof(there);
  if (getsockname(socket_fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0 ||
      getpeername(socket_fd, reinterpret_cast<sockaddr*>(&there), &there_size) != 0) {
    return SystemError();
  }
  const FileDescriptor netlink(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (netlink.get() < 0) return SystemError();
  // The kernel normally answers at once. Without the timeout, recv() would block forever if it did
  // not.
  const timeval patience{1, 0};
  setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));

  // Ask for the peer's socket: its local address is this socket's remote address, and vice versa.
  Request request{};
  request.header.nlmsg_len = sizeof(request);
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  inet_diag_req_v2& question = request.question;
  question.sdiag_family = static_cast<uint8_t>(there.ss_family);
  question.sdiag_protocol = IPPROTO_TCP;
  question.idiag_states = ~0u;
  question.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  question.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (!Split(there, &question.id.idiag_sport, question.id.idiag_src) ||
      !Split(here, &question.id.idiag_dport, question.id.idiag_dst)) {
    return Unknown("it is not a TCP connection");
  }
  if (send(netlink.get(), &request, sizeof(request), 0) != sizeof(request)) return SystemError();

  alignas(nlmsghdr) char answer[4096];
  const ssize_t size = recv(netlink.get(), answer, sizeof(answer), 0);
  if (size < 0) return SystemError();
  nlmsghdr header;
  if (static_cast<size_t>(size) < sizeof(header))
    return Unknown("the kernel's answer is cut short");
  std::memcpy(&header, answer, sizeof(header));
  if (header.nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error{};
    std::memcpy(&error, answer + NLMSG_HDRLEN, sizeof(error));
    return Unknown(error.error == -ENOENT ? "its other end is no longer on this machine"
                                          : std::strerror(-error.error));
  }
  inet_diag_msg found;
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      static_cast<size_t>(size) < NLMSG_HDRLEN + sizeof(found)) {
    return Unknown("unexpected answer from the kernel");
  }
  std::memcpy(&found, answer + NLMSG_HDRLEN, sizeof(found));
  // For a socket that the process has released, the kernel wrongly reports user 0.
  if (found.idiag_inode == 0) return Unknown("its other end has been closed");
  return found.idiag_uid;
}

std::optional<uid_t> GetOverflowUser(const std::string& uid_map, const std::string& overflow) {
  uint64_t known = 0;
  // Each line contains the first user id inside, the first one outside, and the count.
  std::istringstream lines(uid_map);
  for (uint64_t here, outside, count; lines >> here >> outside >> count;) known += count;
  if (known >= kUsers) return std::nullopt;
  uint32_t user = kDefaultOverflow;
  return absl::SimpleAtoi(overflow, &user) ? user : kDefaultOverflow;
}

std::optional<uid_t> OverflowUser() {
  return GetOverflowUser(GetContents("/proc/self/uid_map"),
                         GetContents("/proc/sys/kernel/overflowuid"));
}

absl::Status CheckOwner(uid_t owner, uid_t own, std::optional<uid_t> overflow) {
  if (owner == 0) return absl::OkStatus();
  if (owner == own && owner == overflow) {
    return Unknown(absl::StrCat("user ", owner,
                                " represents all users that are not mapped into this container"));
  }
  if (owner == own) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("belongs to user ", owner));
}

}  // namespace torchps
