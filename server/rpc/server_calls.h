#pragma once

#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_unary_call.h"
#include "wire/status_codec.h"

namespace torchps {

// Sends the same request to several servers in parallel.
//
// Thread-safe: Stop() cancels a running Ask() of another thread. Must not be destroyed while Ask()
// runs.
class ServerCalls {
 public:
  // Returns one answer for each server, indexed by server number. Blocks until all servers in
  // `asked` have answered or `timeout` expires. Each element of `asked` is within [0, servers).
  // Servers that were not asked get UNKNOWN. Calls that Stop() cancelled get CANCELLED. `begin`
  // starts the call to one server, and the objects it uses must live until Ask() returns:
  //   [&](int server, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
  //     return stubs[server]->AsyncLeave(context, request, queue);
  //   }
  template <typename Reply, typename Begin>
  std::vector<absl::StatusOr<Reply>> Ask(const std::vector<int>& asked, size_t servers,
                                         absl::Duration timeout, const Begin& begin)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Cancels running calls and all future ones. Does not block. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    stopped_ = true;
    for (grpc::ClientContext* const context : contexts_) context->TryCancel();
  }

 private:
  template <typename Reply>
  struct Call {
    grpc::ClientContext context;
    Reply reply;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
  };

  static absl::Status Stopped() { return absl::CancelledError("the coordinator is shutting down"); }

  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);  // of running calls
};

template <typename Reply, typename Begin>
std::vector<absl::StatusOr<Reply>> ServerCalls::Ask(const std::vector<int>& asked, size_t servers,
                                                    absl::Duration timeout, const Begin& begin) {
  std::vector<std::unique_ptr<Call<Reply>>> calls(servers);
  {
    MutexLock lock(&mutex_);
    if (stopped_) return std::vector<absl::StatusOr<Reply>>(servers, Stopped());
    for (const int server : asked) {
      calls[server] = std::make_unique<Call<Reply>>();
      calls[server]->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
      contexts_.insert(&calls[server]->context);
    }
  }
  // Uses a local queue, because gRPC 1.51's callback threads sometimes crash when a channel is
  // destroyed with its last call.
  grpc::CompletionQueue queue;
  for (const int server : asked) {
    Call<Reply>& call = *calls[server];
    call.reader = begin(server, &call.context, &queue);
    call.reader->Finish(&call.reply, &call.status, &call);
  }
  // Next() returns false after the last call has ended.
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  std::vector<absl::StatusOr<Reply>> replies(servers, absl::UnknownError("not asked"));
  MutexLock lock(&mutex_);
  for (const int server : asked) {
    Call<Reply>& call = *calls[server];
    contexts_.erase(&call.context);
    const absl::Status status = FromGrpcStatus(call.status);
    if (status.ok()) {
      replies[server] = std::move(call.reply);
    } else {
      replies[server] = stopped_ ? Stopped() : status;
    }
  }
  return replies;
}

}  // namespace torchps
