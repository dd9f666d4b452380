#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/security/certificate_files.h"
#include "torchps/server/rpc/connection_filter.h"

namespace torchps {

// Listening port of a process of the job. Decides if the process may listen there without TLS, and
// passes the connections that a ConnectionFilter admits to a gRPC server.
//
// Thread-safe once open. Use: Create(), Attach() to a builder, BuildAndStart(), Open().
class Listener {
 public:
  struct Options {
    std::string listen;  // HOST:PORT
    // Null means without TLS.
    std::shared_ptr<CertificateFiles> certificates;
    // Allows listening without TLS beyond loopback, and admits all users of this machine on
    // loopback.
    bool insecure = false;
    // Parts of the error message if listening without TLS is refused: the risk ("change the model")
    // and the remedy.
    std::string danger;
    std::string remedy;
    // Handshake timeout.
    absl::Duration patience = absl::Seconds(10);
    LogLine log;
    const Clock* clock = nullptr;  // outlives the listener
  };

  // Binds and listens; connections are accepted after Open(). Returns INVALID_ARGUMENT if `listen`
  // is not HOST:PORT, or is not a loopback address and certificates are missing. Returns
  // ALREADY_EXISTS if the port is in use, and UNAVAILABLE if the host is not an address of this
  // machine.
  static absl::StatusOr<std::unique_ptr<Listener>> Create(Options options);

  // Passes the connections to the server that `builder` builds. That server must be destroyed
  // before the listener.
  void Attach(grpc::ServerBuilder* builder);

  void Open() { filter_->Open(); }
  // Stops accepting connections. Idempotent.
  void Close() { filter_->Close(); }

  // Both return HOST:PORT with the actual port. address() returns the configured host, and
  // reachable_at() the host name that other machines use (ReachableHost).
  const std::string& address() const { return address_; }
  const std::string& reachable_at() const { return reachable_at_; }

  // Called when a call arrives: the handshake of the call's connection has ended.
  void EndHandshake(const grpc::ServerContext& context);

 private:
  explicit Listener(Options options) : options_(std::move(options)) {}

  absl::Status Listen();

  const Options options_;
  std::string address_;
  std::string reachable_at_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<ConnectionFilter> filter_;
};

}  // namespace torchps
