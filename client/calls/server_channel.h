#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "security/certificate_files.h"

namespace torchps {

class AddressResolver;

// A server as a worker sees it. Cheap to copy: copies share the channel.
struct ServerEndpoint {
  int index = 0;
  // "HOST:PORT"; empty where the server is inside this process; "file:PATH" until the server has
  // written its address there.
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
  // What the channel's credentials are made of; null: it has no TLS.
  std::shared_ptr<CertificateFiles> certificates = nullptr;
  // Knows where the server is once it is no longer here; null: nobody does.
  std::shared_ptr<AddressResolver> book = nullptr;

  // 0 where the server is inside this process.
  int port() const;
  // For messages: "server 1 at 10.0.0.2:5000".
  std::string name() const;
};

// Where what is for the server at `address` is to be sent: to what `relays`, "ADDRESS=RELAY,...",
// names for it, else to itself. A relay passes on bytes, so names and certificates stay the
// server's.
std::string GetRelay(absl::string_view relays, const std::string& address);

// A channel with the settings that every connection of ours has, by TLS if there are certificates
// (a worker's); nothing is sent yet, and an address at which no server listens is no error here.
// It goes through the relay that the environment's TORCHPS_RELAYS names for that address, as in a
// drill of a network that breaks.
ServerEndpoint ConnectToServer(int index, const std::string& address,
                               std::shared_ptr<CertificateFiles> certificates = nullptr);

// What one message between two processes of a replica may have: the activations of a micro-batch.
inline constexpr int kMaxParcelBytes = 1 << 30;

// The same to another process of a replica (worker/pipeline/exchange.h).
std::shared_ptr<grpc::Channel> ConnectToMember(
    const std::string& address, const std::shared_ptr<CertificateFiles>& certificates);

}  // namespace torchps
