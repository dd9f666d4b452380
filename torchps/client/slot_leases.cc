#include "torchps/client/slot_leases.h"

#include <algorithm>
#include <memory>

#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

template <typename Request, typename Reply>
struct OneCall {
  RemoteServer* server = nullptr;
  Request request;
  Reply reply;
  grpc::Status status;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
};

// Makes all `calls` concurrently and waits until they end, at most until `deadline`.
template <typename Calls, typename Begin>
void MakeAll(Calls& calls, absl::Time deadline, const Begin& begin) {
  grpc::CompletionQueue queue;
  for (const auto& call : calls) {
    call->context.set_deadline(absl::ToChronoTime(deadline));
    call->reader = begin(*call, &queue);
    call->reader->Finish(&call->reply, &call->status, call.get());
  }
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
}

template <typename Call>
Call& AddCall(std::vector<std::unique_ptr<Call>>& calls, RemoteServer* server) {
  calls.push_back(std::make_unique<Call>());
  calls.back()->server = server;
  return *calls.back();
}

// Adds a call to `server` for the slot.
template <typename Call>
Call& AddCall(std::vector<std::unique_ptr<Call>>& calls, RemoteServer* server, SlotId slot,
              Incarnation incarnation) {
  Call& call = AddCall(calls, server);
  call.request.set_slot(slot);
  call.request.set_incarnation(incarnation);
  call.request.set_server_incarnation(server->lease().server_incarnation());
  return call;
}

}  // namespace

std::vector<RemoteServer*> SlotLeases::Greeted() const {
  std::vector<RemoteServer*> greeted;
  for (RemoteServer* const server : servers_) {
    if (server->lease().server_incarnation() != 0) greeted.push_back(server);
  }
  return greeted;
}

Renewals SlotLeases::Renew(absl::Duration timeout, absl::Duration stalled_for,
                           absl::Duration longest_pause) {
  const absl::Time deadline = absl::Now() + timeout;
  using Call = OneCall<RenewRequest, RenewReply>;
  std::vector<std::unique_ptr<Call>> calls;
  using Restore = OneCall<HelloRequest, HelloReply>;
  std::vector<std::unique_ptr<Restore>> restores;
  for (RemoteServer* const server : Greeted()) {
    Call& call = AddCall(calls, server, slot_, incarnation_);
    call.request.set_stalled_seconds(absl::ToDoubleSeconds(stalled_for));
    server->lease().RenewalBegins();
  }
  MakeAll(calls, deadline, [](Call& call, grpc::CompletionQueue* queue) {
    return call.server->stub()->AsyncRenew(&call.context, call.request, queue);
  });
  Renewals renewals;
  for (const std::unique_ptr<Call>& call : calls) {
    ServerLease& lease = call->server->lease();
    const absl::Status status = FromGrpcStatus(call->status);
    // A server that does not know the slot has answered, too.
    lease.RenewalEnds(!RetryDeadline::MayRetry(status), longest_pause);
    if (absl::IsAborted(status)) {
      AddCall(restores, call->server).request = call->server->RestoreRequest();
    }
    renewals.contacts[call->server->index()] = lease.contact();
    if (!call->status.ok() || !call->reply.has_waited_for()) continue;
    const WaitedFor& waited_for = call->reply.waited_for();
    const absl::Duration time = absl::Seconds(waited_for.seconds());
    if (renewals.blocking_slot.has_value() && renewals.blocking_slot->time >= time) continue;
    renewals.blocking_slot = BlockingSlot{waited_for.slot(), time, call->server->endpoint().name()};
  }
  // The answers do not matter: the next renewal asks again.
  MakeAll(restores, deadline, [](Restore& call, grpc::CompletionQueue* queue) {
    return call.server->stub()->AsyncHello(&call.context, call.request, queue);
  });
  return renewals;
}

void SlotLeases::StepAside(absl::Duration timeout, const std::vector<int>& silent) {
  using Call = OneCall<LeaveRequest, LeaveReply>;
  std::vector<std::unique_ptr<Call>> calls;
  for (RemoteServer* const server : Greeted()) {
    if (std::find(silent.begin(), silent.end(), server->index()) != silent.end()) continue;
    AddCall(calls, server, slot_, incarnation_);
    // Stops the renewals, so that the lease expires if the Leave fails.
    server->lease().End();
  }
  MakeAll(calls, absl::Now() + timeout, [](Call& call, grpc::CompletionQueue* queue) {
    return call.server->stub()->AsyncLeave(&call.context, call.request, queue);
  });
}

}  // namespace torchps
