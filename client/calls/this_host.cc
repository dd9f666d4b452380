#include "client/calls/this_host.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <random>

namespace torchps {
namespace {

// Only addresses of this machine can be bound.
bool CanBindTo(const addrinfo& candidate) {
  const int fd = socket(candidate.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool bound = bind(fd, candidate.ai_addr, candidate.ai_addrlen) == 0;
  close(fd);
  return bound;
}

}  // namespace

bool IsLocalAddress(const std::string& address) {
  if (address.empty()) return true;
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Without a service, each address contains port 0, which binds to any free port.
  if (host.empty() || getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    if (CanBindTo(*candidate)) return true;
  }
  return false;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

uint64_t DrawNonce() {
  std::random_device random;
  uint64_t nonce = 0;
  while (nonce == 0) nonce = (uint64_t{random()} << 32) | random();
  return nonce;
}

}  // namespace torchps
