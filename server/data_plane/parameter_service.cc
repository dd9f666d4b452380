#include "server/data_plane/parameter_service.h"

#include <utility>

#include "server/data_plane/pull_call.h"
#include "server/data_plane/push_call.h"
#include "server/rpc/unary_call.h"

namespace torchps {

ParameterServiceShell::ParameterServiceShell(ParameterServer* server, CallAdmission* admission,
                                             std::function<void()> shut_down)
    : server_(server), admission_(admission), shut_down_(std::move(shut_down)) {}

void ParameterServiceShell::Listen(grpc::ServerCompletionQueue* queue, TurnLine* turns,
                                   ReadPlaces* places, std::shared_ptr<const void> in_use) {
  PushCall::Listen(
      [this, queue, in_use](grpc::ServerContext* context, PushCall::Reader* reader, void* tag) {
        service_.RequestPush(context, reader, queue, queue, tag);
      },
      server_, admission_, places);
  PullCall::Listen(
      [this, queue, in_use](grpc::ServerContext* context, grpc::ByteBuffer* request,
                            PullCall::Writer* writer, void* tag) {
        service_.RequestPull(context, request, writer, queue, queue, tag);
      },
      server_, admission_, turns);

  using HelloCall = UnaryCall<HelloRequest, HelloReply>;
  HelloCall::Listen(
      admission_,
      [this, queue, in_use](grpc::ServerContext* context, HelloRequest* request,
                            HelloCall::Writer* writer, void* tag) {
        service_.RequestHello(context, request, writer, queue, queue, tag);
      },
      [this](const HelloCall::Pointer& call) {
        server_->Hello(call->request(),
                       [call](const absl::StatusOr<HelloReply>& reply) { call->Respond(reply); });
      });

  using RenewCall = UnaryCall<RenewRequest, RenewReply>;
  RenewCall::Listen(
      admission_,
      [this, queue, in_use](grpc::ServerContext* context, RenewRequest* request,
                            RenewCall::Writer* writer, void* tag) {
        service_.RequestRenew(context, request, writer, queue, queue, tag);
      },
      [this](const RenewCall::Pointer& call) {
        const RenewRequest& request = call->request();
        const absl::StatusOr<HostedJob*> job = server_->JobFor(request.server_life());
        const absl::Status renewed =
            job.ok() ? (*job)->Renew(request.slot(), request.incarnation()) : job.status();
        if (renewed.ok()) {
          call->Respond(RenewReply());
        } else {
          call->Respond(renewed);
        }
      });

  using LeaveCall = UnaryCall<LeaveRequest, LeaveReply>;
  LeaveCall::Listen(
      admission_,
      [this, queue, in_use](grpc::ServerContext* context, LeaveRequest* request,
                            LeaveCall::Writer* writer, void* tag) {
        service_.RequestLeave(context, request, writer, queue, queue, tag);
      },
      [this](const LeaveCall::Pointer& call) {
        const LeaveRequest& request = call->request();
        const absl::StatusOr<HostedJob*> job = server_->JobFor(request.server_life());
        if (!job.ok()) {
          call->Respond(job.status());
          return;
        }
        (*job)->Leave(request.slot(), request.incarnation());
        call->Respond(LeaveReply());
      });

  using StatusCall = UnaryCall<ServerStatusRequest, ServerStatus>;
  StatusCall::Listen(
      admission_,
      [this, queue, in_use](grpc::ServerContext* context, ServerStatusRequest* request,
                            StatusCall::Writer* writer, void* tag) {
        service_.RequestGetServerStatus(context, request, writer, queue, queue, tag);
      },
      [this](const StatusCall::Pointer& call) {
        call->Respond(server_->Describe(call->request().include_ledger()));
      });

  using ShardCall = UnaryCall<WriteShardRequest, ShardInfo>;
  ShardCall::Listen(
      admission_,
      [this, queue, in_use](grpc::ServerContext* context, WriteShardRequest* request,
                            ShardCall::Writer* writer, void* tag) {
        service_.RequestWriteShard(context, request, writer, queue, queue, tag);
      },
      [this](const ShardCall::Pointer& call) {
        server_->WriteShard(call->request(),
                            [call](const absl::StatusOr<ShardInfo>& info) { call->Respond(info); });
      });

  using CommitCall = UnaryCall<CommitCheckpointRequest, CommitCheckpointReply>;
  CommitCall::Listen(
      admission_,
      [this, queue, in_use](grpc::ServerContext* context, CommitCheckpointRequest* request,
                            CommitCall::Writer* writer, void* tag) {
        service_.RequestCommitCheckpoint(context, request, writer, queue, queue, tag);
      },
      [this](const CommitCall::Pointer& call) {
        server_->CommitCheckpoint(
            call->request(),
            [call](const absl::StatusOr<CommitCheckpointReply>& reply) { call->Respond(reply); });
      });

  using ShutdownCall = UnaryCall<ShutdownRequest, ShutdownReply>;
  ShutdownCall::Listen(
      admission_,
      [this, queue, in_use](grpc::ServerContext* context, ShutdownRequest* request,
                            ShutdownCall::Writer* writer, void* tag) {
        service_.RequestShutdown(context, request, writer, queue, queue, tag);
      },
      [this](const ShutdownCall::Pointer& call) {
        call->Respond(ShutdownReply());
        shut_down_();
      });
}

}  // namespace torchps
