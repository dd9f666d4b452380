#include "torchps/server/data_plane/parameter_service.h"

#include <utility>

#include "absl/time/time.h"
#include "torchps/security/roles.h"
#include "torchps/server/backup/backup_service.h"
#include "torchps/server/data_plane/pull_call.h"
#include "torchps/server/data_plane/push_call.h"
#include "torchps/server/rpc/unary_call.h"

namespace torchps {

ParameterServiceShell::ParameterServiceShell(ParameterServer* server, CallAdmission* admission,
                                             std::function<void()> shut_down)
    : server_(server),
      admission_(admission),
      shut_down_(std::move(shut_down)),
      known_(&server->clock()),
      open_pushes_(server, &server->clock()),
      open_pulls_(server, &server->clock()) {}

void ParameterServiceShell::WatchCalls() {
  open_pushes_.Watch();
  open_pulls_.Watch();
  const HostedJob* const job = server_->job();
  if (job == nullptr) return;
  known_.Forget([job](SlotId slot,
                      Incarnation incarnation) { return job->CheckLive(slot, incarnation).ok(); },
                absl::Seconds(job->spec().membership().lease_seconds()));
}

void ParameterServiceShell::Listen(Poller* poller) {
  PushCall::Listen([this, queue = poller->queue(), in_use = poller->Use()](
                       grpc::ServerContext* context, PushCall::Reader* reader,
                       void* tag) { service_.RequestPush(context, reader, queue, queue, tag); },
                   {server_, admission_, &open_pushes_, &known_});
  PullCall::Listen(
      [this, queue = poller->queue(), in_use = poller->Use()](
          grpc::ServerContext* context, grpc::ByteBuffer* request, PullCall::Writer* writer,
          void* tag) { service_.RequestPull(context, request, writer, queue, queue, tag); },
      {server_, admission_, &open_pulls_, &known_, poller});
  const auto listen_for = [&](auto method, auto handler) {
    ListenFor(poller, admission_, &service_, method, std::move(handler));
  };
  // Called before the answer, because a push may follow the answer immediately.
  const auto hear = [this](const auto& call) {
    known_.RecordCall(call->connection(), call->request().slot(), call->request().incarnation());
  };
  listen_for(&Service::RequestHello, [this, hear](const auto& call) {
    server_->Hello(call->request(), [call, hear](const absl::StatusOr<HelloReply>& reply) {
      if (reply.ok() && !reply->has_restoring()) hear(call);
      call->Respond(reply);
    });
  });
  listen_for(&Service::RequestRenew, [this, hear](const auto& call) {
    const RenewRequest& request = call->request();
    const absl::StatusOr<HostedJob*> job = server_->JobFor(request.server_incarnation());
    if (!job.ok()) return call->Respond(job.status());
    const absl::StatusOr<RenewReply> renewed = (*job)->Renew(
        request.slot(), request.incarnation(), absl::Seconds(request.stalled_seconds()));
    if (renewed.ok()) hear(call);
    call->Respond(renewed);
  });
  listen_for(&Service::RequestLeave, [this](const auto& call) {
    const LeaveRequest& request = call->request();
    // Only the coordinator sends a Leave without a server incarnation: when it evicts a slot. This
    // Leave applies to any incarnation of the server.
    const bool is_farewell = request.server_incarnation() == 0;
    if (is_farewell) {
      if (const absl::Status may = call->Admit(kFarewell); !may.ok()) return call->Respond(may);
    }
    const absl::StatusOr<HostedJob*> job =
        server_->JobFor(is_farewell ? server_->server_incarnation() : request.server_incarnation());
    if (job.ok() && is_farewell) {
      (*job)->End(request.slot(), request.incarnation());
    } else if (job.ok()) {
      (*job)->Leave(request.slot(), request.incarnation());
    }
    call->Respond(job.ok() ? absl::StatusOr<LeaveReply>(LeaveReply()) : job.status());
  });
  listen_for(&Service::RequestGetServerStatus, [this](const auto& call) {
    call->Respond(server_->Describe(call->request().include_ledger()));
  });
  listen_for(&Service::RequestWriteShard, [this](const auto& call) {
    server_->WriteShard(call->request(), [call](const auto& info) { call->Respond(info); });
  });
  listen_for(&Service::RequestCommitCheckpoint, [this](const auto& call) {
    server_->CommitCheckpoint(call->request(), [call](const auto& reply) { call->Respond(reply); });
  });
  const auto respond = [](const auto& call) {
    return [call](const auto& reply) { call->Respond(reply); };
  };
  listen_for(&Service::RequestStoreCopy, [this, respond](const auto& call) {
    server_->backup_service().Store(call->request(), respond(call));
  });
  listen_for(&Service::RequestDropCopies, [this, respond](const auto& call) {
    server_->backup_service().Drop(call->request(), respond(call));
  });
  listen_for(&Service::RequestListCopies, [this, respond](const auto& call) {
    server_->backup_service().List(call->request(), respond(call));
  });
  listen_for(&Service::RequestReadCopy, [this, respond](const auto& call) {
    server_->backup_service().Read(call->request(), respond(call));
  });
  listen_for(&Service::RequestShutdown, [this](const auto& call) {
    call->Respond(ShutdownReply());
    shut_down_();
  });
}

}  // namespace torchps
