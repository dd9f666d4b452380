#include "torchps/server/coordinator/eviction_notifier.h"

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "torchps/proto/parameter_service.grpc.pb.h"

namespace torchps {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(5);

}  // namespace

void EvictionNotifier::Notify(EvictedSlot gone) {
  if (connect_ == nullptr) return;
  MutexLock lock(&mutex_);
  if (stopping_) return;
  gone_.push_back(std::move(gone));
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.Signal();
}

void EvictionNotifier::Stop() {
  calls_.Stop();
  std::thread thread;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    std::swap(thread, thread_);
  }
  if (thread.joinable()) thread.join();
}

void EvictionNotifier::Run() {
  while (true) {
    EvictedSlot gone;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && gone_.empty()) changed_.Wait(&mutex_);
      if (stopping_) return;
      gone = std::move(gone_.front());
      gone_.pop_front();
    }
    NotifyServers(gone);
  }
}

void EvictionNotifier::NotifyServers(const EvictedSlot& gone) {
  std::vector<std::unique_ptr<ParameterService::Stub>> stubs(gone.servers.size());
  std::vector<int> reached;
  for (size_t i = 0; i < gone.servers.size(); ++i) {
    const auto server = static_cast<int>(i);
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        connect_(server, gone.servers[i]);
    if (!channel.ok()) continue;
    stubs[i] = ParameterService::NewStub(*channel);
    reached.push_back(server);
  }
  LeaveRequest request;
  request.set_slot(gone.holder.slot);
  request.set_incarnation(gone.holder.incarnation);
  calls_.Ask<LeaveReply>(
      reached, stubs.size(), kTimeout,
      [&](int server, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stubs[server]->AsyncLeave(context, request, queue);
      });
}

}  // namespace torchps
