#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "torchps/security/certificate_files.h"

namespace torchps {

class AddressResolver;

// Describes a server to a worker. Cheap to copy: copies share the channel.
struct ServerEndpoint {
  int index = 0;
  // "HOST:PORT"; empty if the server is in this process; "file:PATH" until the server has written
  // the address there.
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  // Source of the channel's credentials; null: no TLS.
  std::shared_ptr<CertificateFiles> certificates = nullptr;
  // Finds the server if it moved; null if moves are not supported.
  std::shared_ptr<AddressResolver> book = nullptr;

  // 0 if the server is in this process.
  int port() const;
  // For messages, for example "server 1 at 10.0.0.2:5000".
  std::string name() const;
};

// Returns the address to connect to for the server at `address`: the relay from `relays`
// ("ADDRESS=RELAY,..."), otherwise `address`. Relays forward bytes, so names and certificates
// remain the server's.
std::string GetRelay(absl::string_view relays, const std::string& address);

// Returns an endpoint with a channel in the standard settings, with TLS if worker `certificates`
// are passed. Does not connect, so an address without a server is not an error here. Uses the relay
// that the environment variable TORCHPS_RELAYS names for the address; fault-injection tests set it.
ServerEndpoint ConnectToServer(int index, const std::string& address,
                               std::shared_ptr<CertificateFiles> certificates = nullptr);

// Maximum size in bytes of a message between two processes of a replica: the activations of a
// micro-batch.
inline constexpr int kMaxParcelBytes = 1 << 30;

// Returns a channel to another process of a replica (torchps/worker/pipeline/exchange.h).
std::shared_ptr<grpc::Channel> ConnectToMember(
    const std::string& address, const std::shared_ptr<CertificateFiles>& certificates);

// True if `address` ("HOST:PORT") belongs to this machine: a loopback address, or an address of a
// local interface. Empty addresses mean a server in this process, so they are local. Resolves host
// names, which may block as long as the system's resolver; unknown names are not local.
//
// The result is a hint: a published port of a container on this machine also looks local.
bool IsLocalAddress(const std::string& address);

// The following functions identify the worker process. Thread-safe.

// Returns the host name; "unknown" if the system does not know the name.
std::string HostName();

// Returns a random nonzero number. It distinguishes this process from a later process with the same
// arguments.
uint64_t DrawNonce();

}  // namespace torchps
