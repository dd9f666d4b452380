#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "grpcpp/server.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/replica.grpc.pb.h"
#include "security/call_admission.h"
#include "security/certificate_files.h"
#include "server/rpc/listener.h"
#include "server/rpc/poller.h"
#include "server/rpc/unary_call.h"

namespace torchps {

// Serves the calls of a replica's other processes: the Replica service on a separate address, with
// the same connection filter and access rules as a server.
//
// Thread-safe. One thread handles calls; the handlers must not block.
class MemberListener {
 public:
  using MeetCall = UnaryCall<RendezvousRequest, RendezvousReply>::Pointer;

  struct Options {
    std::string listen;
    std::shared_ptr<CertificateFiles> certificates;
    bool insecure = false;
    std::function<void(const MeetCall& call)> on_meet;
    std::function<absl::Status(TensorMessage parcel)> on_parcel;
    std::function<void(const std::string& line)> log;
    const Clock* clock = nullptr;  // outlives the listener
  };

  // INVALID_ARGUMENT: `listen` is not HOST:PORT, or is not a loopback address and there are no
  // certificates. ALREADY_EXISTS: the port is in use. UNAVAILABLE: the host is not this machine.
  static absl::StatusOr<std::unique_ptr<MemberListener>> Start(Options options);
  ~MemberListener() { Stop(); }

  // HOST:PORT, with the actual port.
  const std::string& address() const { return door_->address(); }

  // Stops handling calls and closes connections. Idempotent, but only one thread may call it at a
  // time.
  void Stop();

 private:
  explicit MemberListener(Options options);

  absl::Status Listen();

  const Options options_;
  CallAdmission admission_;
  Replica::AsyncService service_;
  std::unique_ptr<Listener> door_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Poller> poller_;
};

}  // namespace torchps
