#include "common/process/loopback_sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

namespace torchps {
namespace {

constexpr char kCubic[] = "cubic";

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

// One end of a connection. IPv4 addresses are as IPv6 shows them, ::ffff:a.b.c.d, whether the
// socket is of one kind or the other.
struct End {
  in6_addr address{};
  int port = 0;

  bool IsLoopback() const {
    if (IN6_IS_ADDR_V4MAPPED(&address)) return address.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&address);
  }
  bool HasAddressOf(const End& other) const {
    return std::memcmp(&address, &other.address, sizeof(address)) == 0;
  }
};

// `ask` is getsockname or getpeername. Nothing: not a socket of this kind, or no such end.
std::optional<End> EndOf(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (ask(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return std::nullopt;
  End end;
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    end.address = v6.sin6_addr;
    end.port = ntohs(v6.sin6_port);
    return end;
  }
  if (storage.ss_family != AF_INET) return std::nullopt;
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
  end.address.s6_addr[10] = end.address.s6_addr[11] = 0xff;
  std::memcpy(&end.address.s6_addr[12], &v4.sin_addr, sizeof(v4.sin_addr));
  end.port = ntohs(v4.sin_port);
  return end;
}

bool IsLoopbackWithPort(int fd, int port) {
  const std::optional<End> here = EndOf(fd, getsockname);
  if (!here.has_value()) return false;
  const std::optional<End> there = EndOf(fd, getpeername);
  if (!there.has_value()) return here->port == port && here->IsLoopback();
  if (here->port != port && there->port != port) return false;
  return (here->IsLoopback() && there->IsLoopback()) || here->HasAddressOf(*there);
}

bool IsCubic(int fd) {
  char name[16] = {};  // TCP_CA_NAME_MAX
  socklen_t length = sizeof(name);
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return false;
  return std::strncmp(name, kCubic, sizeof(name)) == 0;
}

}  // namespace

int UseCubicOnLoopback(int port) {
  const std::unique_ptr<DIR, CloseDirectory> files(opendir("/proc/self/fd"));
  if (files == nullptr) return 0;
  int changed = 0;
  while (const dirent* entry = readdir(files.get())) {
    const int fd = std::atoi(entry->d_name);  // "." and ".." become 0, which is looked at once more
    if (!IsLoopbackWithPort(fd, port) || IsCubic(fd)) continue;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCubic, sizeof(kCubic) - 1) == 0) ++changed;
  }
  return changed;
}

}  // namespace torchps
