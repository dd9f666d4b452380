#pragma once

#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/async_unary_call.h"
#include "torchps/common/mutex.h"
#include "torchps/transport/event_poller.h"
#include "torchps/transport/status_codec.h"

#ifdef TORCHPS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace torchps {

// Tag that a completion queue returns when an operation has ended. Every void* tag that
// torchps/server/ passes to gRPC is a CompletionTag*.
class CompletionTag {
 public:
  virtual ~CompletionTag() = default;

  // Called on a completion queue's thread when the operation has ended. gRPC passes `ok` = false if
  // the operation failed or the queue is shutting down.
  virtual void Proceed(bool ok) = 0;

  // Returns true if Proceed() runs so long that waking another thread to poll is worth the cost.
  bool is_long() const { return is_long_; }

 protected:
  bool is_long_ = false;
};

// Tag for one kind of pending operation of a call. Forwards to a member function, and keeps the
// call alive while gRPC holds the tag. A call owns one CallTag for each kind of operation and arms
// the tag before each operation. Not thread-safe, which is enough because the same operation is
// never pending twice.
//
// Arming a tag happens before gRPC returns that tag. Debian's gRPC is not instrumented, so the
// annotations below pass this order on to ThreadSanitizer.
template <class Call>
class CallTag final : public CompletionTag {
 public:
  using Method = void (Call::*)(bool ok);

  explicit CallTag(Method method) : method_(method) {}

  // Returns the pointer to pass to gRPC.
  void* Arm(std::shared_ptr<Call> call) {
    call_ = std::move(call);
#ifdef TORCHPS_TSAN
    __tsan_release(this);
#endif
    return static_cast<CompletionTag*>(this);
  }

  // Declares that the method runs long (see CompletionTag::is_long).
  void SetLong(bool is_long) { is_long_ = is_long; }

  // Releases the call if gRPC will not report the operation.
  void Disarm() { call_.reset(); }

  void Proceed(bool ok) override {
#ifdef TORCHPS_TSAN
    __tsan_acquire(this);
#endif
    // Moved out first because the method may arm this tag again or drop the last reference.
    const std::shared_ptr<Call> call = std::move(call_);
    ((*call).*method_)(ok);
  }

 private:
  const Method method_;
  std::shared_ptr<Call> call_;
};

// Round-robin queue of calls that are ready to send. gRPC returns finished operations before it
// polls the sockets. So a stream with writes that finish at once would continue until its socket is
// full, and other ready streams would starve. Instead, a call with another block to send enters
// this queue. The polling thread polls the completion queue a few times before it serves the first
// call, so that other calls can enter as well.
//
// Thread-safe. The caller of Next() runs a turn, which is the tag's Proceed(true). Invariants:
// turns follow the order of entering. A waiting call is due after kPolls polls or one long event
// (CompletionTag::is_long), so events cannot crowd out turns, nor turns events.
class RoundRobin {
 public:
  // A poll reports at most one socket event. It costs 1 us, and a turn that sends 1 MiB costs 300
  // us, so 4 polls are cheap. In a measurement with 16 pulls, 2 polls were enough for equal shares.
  static constexpr int kPolls = 4;

  // Appends `tag` to the queue. Does not wake a thread. REQUIRES: `tag` is not queued, and lives
  // until its turn. The calling thread checks the queue before it sleeps.
  void Enter(CompletionTag* tag);

  // Removes and returns the tag to run next. Returns null if the queue is empty or the completion
  // queue must be polled first.
  CompletionTag* Next();

  // Records one poll of the completion queue. `was_long` is true if the poll returned a tag with
  // is_long().
  void Polled(bool was_long);

  // Returns true if calls are queued. The completion queue may then be polled, but not waited on.
  bool waits() const;

 private:
  mutable Mutex mutex_;
  std::deque<CompletionTag*> line_ ABSL_GUARDED_BY(mutex_);
  // Polls since the last turn, or since the queue was last empty.
  int polls_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Owns a server's completion queue and the threads that poll it. Only one thread polls at a time.
// That thread runs short tasks itself, because waking another thread costs more. Before a long
// task, it lets the next thread poll.
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

  // Queues a call that is ready to send its next part. REQUIRES: as RoundRobin::Enter; the caller
  // is a thread of this poller.
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
