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

// Asks several servers the same at the same time, and can be told to leave off.
//
// Thread-safe: Stop() breaks off what Ask() waits for on another thread. Destroyed when no Ask() is
// under way.
class ServerCalls {
 public:
  // The answers of the servers `asked`, each within [0, servers), in the place of their number;
  // UNKNOWN in the other places. Waits until all have answered or `timeout` is over: `begin` makes
  // the call to one of them,
  //   [&](int server, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
  //     return stubs[server]->AsyncLeave(context, request, queue);
  //   }
  // and nothing that it uses may go meanwhile. CANCELLED, of calls that Stop() broke off.
  template <typename Reply, typename Begin>
  std::vector<absl::StatusOr<Reply>> Ask(const std::vector<int>& asked, size_t servers,
                                         absl::Duration timeout, const Begin& begin)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // For good. Does not wait. Idempotent.
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
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);  // of calls under way
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
  // Not gRPC's own threads: those of 1.51 die now and then when a channel goes with its last call.
  grpc::CompletionQueue queue;
  for (const int server : asked) {
    Call<Reply>& call = *calls[server];
    call.reader = begin(server, &call.context, &queue);
    call.reader->Finish(&call.reply, &call.status, &call);
  }
  // Ends when the last call has.
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
