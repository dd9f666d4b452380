#include "server/coordinator/farewells.h"

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
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
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<LeaveReply>> reader;
};

void Farewells::Say(GoneSlot gone) {
  if (connect_ == nullptr) return;
  MutexLock lock(&mutex_);
  if (stopping_) return;
  gone_.push_back(std::move(gone));
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.Signal();
}

void Farewells::Stop() {
  std::thread thread;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    for (grpc::ClientContext* const context : contexts_) context->TryCancel();
    changed_.SignalAll();
    std::swap(thread, thread_);
  }
  if (thread.joinable()) thread.join();
}

void Farewells::Run() {
  while (true) {
    GoneSlot gone;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && gone_.empty()) changed_.Wait(&mutex_);
      if (stopping_) return;
      gone = std::move(gone_.front());
      gone_.pop_front();
    }
    Tell(gone);
  }
}

void Farewells::Tell(const GoneSlot& gone) {
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t i = 0; i < gone.servers.size(); ++i) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        connect_(static_cast<int>(i), gone.servers[i]);
    if (!channel.ok()) continue;
    calls.push_back(std::make_unique<Call>());
    Call& call = *calls.back();
    call.stub = ParameterService::NewStub(*channel);
    call.context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
    call.request.set_slot(gone.holder.slot);
    call.request.set_incarnation(gone.holder.incarnation);
  }
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    for (const auto& call : calls) contexts_.push_back(&call->context);
  }
  // Not gRPC's own threads: those of 1.51 die now and then when a channel goes with its last call.
  grpc::CompletionQueue queue;
  for (const auto& call : calls) {
    call->reader = call->stub->AsyncLeave(&call->context, call->request, &queue);
    call->reader->Finish(&call->reply, &call->status, call.get());
  }
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  MutexLock lock(&mutex_);
  contexts_.clear();
}

}  // namespace torchps
