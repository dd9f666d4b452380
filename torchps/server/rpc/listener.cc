#include "torchps/server/rpc/listener.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/security/call_admission.h"
#include "torchps/security/credentials.h"
#include "torchps/server/rpc/listening_sockets.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<Listener>> Listener::Create(Options options) {
  auto door = absl::WrapUnique(new Listener(std::move(options)));
  if (absl::Status status = door->Listen(); !status.ok()) return status;
  return door;
}

absl::Status Listener::Listen() {
  const absl::StatusOr<ListenAddress> wanted = ParseListenAddress(options_.listen);
  if (!wanted.ok()) return wanted.status();
  const bool tls = options_.certificates != nullptr;
  if (!tls && !options_.insecure && !wanted->is_loopback) {
    return absl::InvalidArgumentError(absl::StrCat("refusing to listen on ", options_.listen,
                                                   " in the clear: anyone who reaches it could ",
                                                   options_.danger, ". ", options_.remedy));
  }
  ConnectionFilter::Options filter;
  filter.host = wanted->host;
  filter.port = wanted->port;
  filter.tls = tls;
  filter.own_user_only = !tls && !options_.insecure;
  filter.handshake_limiter.patience = options_.patience;
  filter.log = options_.log;
  filter.clock = options_.clock;
  filter.admit = [this](FileDescriptor connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection.Release();
    acceptor_->HandleNewConnection(&parameters);
  };
  absl::StatusOr<std::unique_ptr<ConnectionFilter>> made =
      ConnectionFilter::Create(std::move(filter));
  if (!made.ok()) return made.status();
  filter_ = *std::move(made);
  address_ = absl::StrCat(wanted->host, ":", filter_->port());
  reachable_at_ = absl::StrCat(ReachableHost(wanted->host), ":", filter_->port());
  return absl::OkStatus();
}

void Listener::Attach(grpc::ServerBuilder* builder) {
  acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options_.certificates == nullptr ? grpc::InsecureServerCredentials()
                                       : TlsServerCredentials(options_.certificates, options_.log));
}

void Listener::EndHandshake(const grpc::ServerContext& context) {
  if (filter_->handshake_limiter().empty()) return;
  filter_->handshake_limiter().HasCalled(CallerAddress(context));
}

}  // namespace torchps
