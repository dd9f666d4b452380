#include "program/pipeline/member_listener.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "client/calls/server_channel.h"
#include "grpcpp/server_builder.h"

namespace torchps {
namespace {

// Calls are short, except parked calls, which are cancelled at the end.
constexpr absl::Duration kDrainTime = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<std::unique_ptr<MemberListener>> MemberListener::Start(Options options) {
  auto listener = absl::WrapUnique(new MemberListener(std::move(options)));
  if (absl::Status status = listener->Listen(); !status.ok()) return status;
  return listener;
}

MemberListener::MemberListener(Options options)
    : options_(std::move(options)),
      admission_(options_.log,
                 [this](const grpc::ServerContext& context) { door_->EndHandshake(context); }) {}

absl::Status MemberListener::Listen() {
  Listener::Options door;
  door.listen = options_.listen;
  door.certificates = options_.certificates;
  door.insecure = options_.insecure;
  door.danger = "read and change what is trained";
  door.remedy =
      "Give the replica's processes certificates with --certs=DIR ('psctl certs' makes them), or "
      "let them listen on 127.0.0.1";
  door.log = options_.log;
  door.clock = options_.clock;
  absl::StatusOr<std::unique_ptr<Listener>> made = Listener::Create(std::move(door));
  if (!made.ok()) return made.status();
  door_ = *std::move(made);

  grpc::ServerBuilder builder;
  door_->Attach(&builder);
  // Allows the clients' keepalive. Otherwise gRPC closes their connections with "too many pings".
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
            [this](const UnaryCall<TensorMessage, DeliverReply>::Pointer& call) {
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
