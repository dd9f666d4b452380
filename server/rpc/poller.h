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

// Owns a server's completion queue and the threads that poll it. Only one thread polls at a time.
// It runs short tasks itself, since waking another thread costs more. Before a long task, it lets
// the next thread poll.
//
// Thread-safe.
class Poller {
 public:
  // `queue` was added to the server's builder.
  explicit Poller(std::unique_ptr<grpc::ServerCompletionQueue> queue);
  // Calls Stop().
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Queue for the operations of calls. Each tag must be a CompletionTag*.
  grpc::ServerCompletionQueue* queue() const { return queue_.get(); }

  // Returns a handle that a call holds while it may still use the queue. Stop() waits for all
  // handles, because gRPC aborts the process if an operation begins on a queue that is shut down.
  std::shared_ptr<const void> Use() const { return use_; }

  // Queues a call that is ready to send its next part (server/rpc/round_robin.h). REQUIRES: as
  // RoundRobin::Enter; the caller is a thread of this poller.
  void Enter(CompletionTag* tag) { turns_.Enter(tag); }

  // Starts the polling threads. Called once. REQUIRES: the gRPC server has started.
  void Start(int threads);

  // Waits until the last call has released the queue, shuts the queue down and joins the threads.
  // Idempotent. REQUIRES: the gRPC server was shut down.
  void Stop();

 private:
  void Run();
  // Waits for an event of the queue or a turn. Returns null if the queue is shut down.
  CompletionTag* AwaitTask(bool* ok) ABSL_EXCLUSIVE_LOCKS_REQUIRED(polling_);

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  RoundRobin turns_;
  std::vector<std::thread> threads_;

  // Held by the thread that polls.
  Mutex polling_;
  EventPoller events_ ABSL_GUARDED_BY(polling_);

  Mutex mutex_;
  CondVar unused_;
  bool is_unused_ ABSL_GUARDED_BY(mutex_) = false;
  // The deleter sets is_unused_. Stop() releases this reference.
  std::shared_ptr<const void> use_;
};

}  // namespace torchps
