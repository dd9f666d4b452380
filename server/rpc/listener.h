#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/server_context.h"
#include "security/certificate_files.h"
#include "server/rpc/connection_filter.h"

namespace torchps {

// Where a process of a job listens: decides whether it may listen there in the clear, and hands the
// connections that its filter admits to a gRPC server.
//
// Thread-safe once it is open. Use: Create(), Attach() to a builder, BuildAndStart(), Open().
class Listener {
 public:
  struct Options {
    std::string listen;  // HOST:PORT
    // Null: in the clear.
    std::shared_ptr<CertificateFiles> certificates;
    // In the clear beyond this machine's loopback, and for every user of this machine on it.
    bool insecure = false;
    // What the refusal to listen in the clear says: what a stranger could do ("change the model"),
    // and what to do about it.
    std::string danger;
    std::string remedy;
    // How long a handshake may take.
    absl::Duration patience = absl::Seconds(10);
    std::function<void(const std::string& line)> log;
    const Clock* clock = nullptr;  // outlives the door
  };

  // Binds and listens; nothing is accepted before Open(). INVALID_ARGUMENT: no HOST:PORT, or an
  // address beyond this machine's loopback without certificates. ALREADY_EXISTS: the port is taken.
  // UNAVAILABLE: the host is not this machine's.
  static absl::StatusOr<std::unique_ptr<Listener>> Create(Options options);

  // Its connections go to the server that `builder` builds, which must end before the door does.
  void Attach(grpc::ServerBuilder* builder);

  void Open() { filter_->Open(); }
  // No connection is accepted any more. Idempotent.
  void Close() { filter_->Close(); }

  // HOST:PORT, with the port that it has; and as others reach it.
  const std::string& address() const { return address_; }
  const std::string& reachable_at() const { return reachable_at_; }

  // A caller has passed its handshake: its call is there.
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
