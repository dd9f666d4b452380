#include "program/members/member_listener.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/calls/server_channel.h"
#include "grpcpp/server_builder.h"
#include "security/credentials.h"
#include "server/rpc/listen_address.h"

namespace torchps {
namespace {

// Calls are short but for those that are parked, which are cancelled when this is over.
constexpr absl::Duration kDrainTime = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<std::unique_ptr<MemberListener>> MemberListener::Start(Options options) {
  auto listener = absl::WrapUnique(new MemberListener(std::move(options)));
  if (absl::Status status = listener->Listen(); !status.ok()) return status;
  return listener;
}

MemberListener::MemberListener(Options options)
    : options_(std::move(options)),
      admission_(options_.log, [this](const grpc::ServerContext& context) {
        door_->handshakes().HasCalled(CallerAddress(context));
      }) {}

absl::Status MemberListener::Listen() {
  const absl::StatusOr<ListenAddress> wanted = ParseListenAddress(options_.listen);
  if (!wanted.ok()) return wanted.status();
  const bool tls = options_.certificates != nullptr;
  if (!tls && !options_.insecure && !wanted->is_loopback) {
    return absl::InvalidArgumentError(
        absl::StrCat("refusing to listen on ", options_.listen,
                     " in the clear: anyone who reaches it could read and change what is trained. ",
                     "Give the replica's processes certificates with --certs=DIR ('psctl certs' ",
                     "makes them), or let them listen on 127.0.0.1"));
  }
  ConnectionFilter::Options filter;
  filter.host = wanted->host;
  filter.port = wanted->port;
  filter.tls = tls;
  filter.own_user_only = !tls && !options_.insecure;
  filter.log = options_.log;
  filter.clock = options_.clock;
  filter.admit = [this](FileDescriptor connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection.Release();
    acceptor_->HandleNewConnection(&parameters);
  };
  absl::StatusOr<std::unique_ptr<ConnectionFilter>> door =
      ConnectionFilter::Create(std::move(filter));
  if (!door.ok()) return door.status();
  door_ = *std::move(door);
  address_ = absl::StrCat(wanted->host, ":", door_->port());

  grpc::ServerBuilder builder;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      tls ? TlsServerCredentials(options_.certificates, options_.log)
          : grpc::InsecureServerCredentials());
  // What the others' keepalive needs, or they are told "too many pings".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.SetMaxReceiveMessageSize(kMaxParcelBytes);
  builder.RegisterService(&service_);
  poller_ = std::make_unique<Poller>(builder.AddCompletionQueue());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start a server");
  ListenFor(poller_.get(), &admission_, &service_, &Replica::AsyncService::RequestMeet,
            options_.on_meet);
  ListenFor(poller_.get(), &admission_, &service_, &Replica::AsyncService::RequestDeliver,
            [this](const UnaryCall<Parcel, DeliverReply>::Pointer& call) {
              const absl::Status taken = options_.on_parcel(call->TakeRequest());
              call->Respond(taken.ok() ? absl::StatusOr<DeliverReply>(DeliverReply()) : taken);
            });
  poller_->Start(/*threads=*/1);
  door_->Open();
  return absl::OkStatus();
}

void MemberListener::Stop() {
  if (server_ == nullptr) return;
  door_->Close();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kDrainTime));
  poller_->Stop();
  server_ = nullptr;
}

}  // namespace torchps
