#include "server/coordinator/farewells.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "grpcpp/channel.h"
#include "proto/parameter_service.grpc.pb.h"

namespace torchps {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(5);

}  // namespace

struct Farewells::Call {
  std::unique_ptr<ParameterService::Stub> stub;
  grpc::ClientContext context;
  LeaveRequest request;
  LeaveReply reply;
};

void Farewells::Say(const GoneSlot& gone) {
  if (connect_ == nullptr) return;
  for (size_t i = 0; i < gone.servers.size(); ++i) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        connect_(static_cast<int>(i), gone.servers[i]);
    if (!channel.ok()) continue;
    const auto call = std::make_shared<Call>();
    call->stub = ParameterService::NewStub(*channel);
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
    call->request.set_slot(gone.holder.slot);
    call->request.set_incarnation(gone.holder.incarnation);
    {
      MutexLock lock(&mutex_);
      if (stopped_) return;
      contexts_.insert(&call->context);
    }
    call->stub->async()->Leave(&call->context, &call->request, &call->reply,
                               [this, call](const grpc::Status&) {
                                 MutexLock lock(&mutex_);
                                 contexts_.erase(&call->context);
                                 ended_.SignalAll();
                               });
  }
}

void Farewells::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (grpc::ClientContext* const context : contexts_) context->TryCancel();
  while (!contexts_.empty()) ended_.Wait(&mutex_);
}

}  // namespace torchps
