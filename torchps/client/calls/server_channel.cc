#include "torchps/client/calls/server_channel.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "torchps/security/credentials.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/grpc_process.h"

namespace torchps {

namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
// The bytes by which a stream of values may be ahead of the reader: a few blocks.
constexpr int kHttp2WindowBytes = 16 << 20;

}  // namespace

std::string ServerEndpoint::name() const {
  return address.empty() ? absl::StrCat("server ", index, " in this process")
                         : absl::StrCat("server ", index, " at ", address);
}

int ServerEndpoint::port() const {
  int port = 0;
  const bool has_port = absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port);
  return has_port ? port : 0;
}

std::string GetRelay(absl::string_view relays, const std::string& address) {
  for (const absl::string_view pair : absl::StrSplit(relays, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> way =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (way.first == address && !way.second.empty()) return std::string(way.second);
  }
  return address;
}

namespace {

grpc::ChannelArguments ArgumentsFor(int max_message_bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_message_bytes);
  arguments.SetInt(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, max_message_bytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  FindAgainSoon(&arguments);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kHttp2WindowBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (1 << 24) - 1);
  // gRPC retries do not know push names, and silently end at 256 KiB.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Connections between workers and servers must not use a proxy from the environment.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Two workers in one process (in tests) must not share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

ServerEndpoint ConnectToServer(int index, const std::string& address,
                               std::shared_ptr<CertificateFiles> certificates) {
  std::string target = ChannelTarget(address);
  if (const char* const relays = std::getenv("TORCHPS_RELAYS")) target = GetRelay(relays, target);
  std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      target, ChannelCredentialsFor(certificates), ArgumentsFor(kMaxFrameBytes));
  return {index, address, std::move(channel), std::move(certificates)};
}

std::shared_ptr<grpc::Channel> ConnectToMember(
    const std::string& address, const std::shared_ptr<CertificateFiles>& certificates) {
  return grpc::CreateCustomChannel(address, MemberCredentialsFor(certificates),
                                   ArgumentsFor(kMaxParcelBytes));
}

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
