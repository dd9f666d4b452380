#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "grpcpp/grpcpp.h"
#include "rpc/event_poller.h"
#include "server/rpc/call_tag.h"
#include "server/rpc/round_robin.h"

namespace torchps {

// A server's completion queue and the threads that poll it. One of them polls at a time, and runs
// by itself whatever is short, since waking another thread costs more. Before it runs what is long
// it lets the next thread poll.
//
// Thread-safe.
class Poller {
 public:
  // `queue` was added to the server's builder.
  explicit Poller(std::unique_ptr<grpc::ServerCompletionQueue> queue);
  // Stops.
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // For the operations of calls; each must be a CompletionTag's.
  grpc::ServerCompletionQueue* queue() const { return queue_.get(); }

  // A call holds this until it will touch the queue no more: Stop() waits for it, since gRPC aborts
  // the process where an operation begins on a queue that is shut down.
  std::shared_ptr<const void> Use() const { return use_; }

  // A call could send its next part, and wants a turn (server/rpc/round_robin.h). REQUIRES: as
  // RoundRobin::Enter; the caller is a thread of this poller.
  void Enter(CompletionTag* tag) { turns_.Enter(tag); }

  // REQUIRES: the gRPC server has started. Once.
  void Start(int threads);

  // Waits until no call uses the queue, shuts it down and joins the threads. REQUIRES: the gRPC
  // server was shut down. Idempotent.
  void Stop();

 private:
  void Run();
  // An event of the queue, or a turn. Null: the queue is shut down.
  CompletionTag* AwaitTask(bool* ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(polling_);

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  RoundRobin turns_;
  std::vector<std::thread> threads_;

  // Held by the one thread that polls.
  Mutex polling_;
  EventPoller events_ ABSL_GUARDED_BY(polling_);

  Mutex mutex_;
  CondVar unused_;
  bool is_unused_ ABSL_GUARDED_BY(mutex_) = false;
  // Its end sets is_unused_; given up by Stop().
  std::shared_ptr<const void> use_;
};

}  // namespace torchps
