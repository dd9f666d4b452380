#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/calls/client_call.h"
#include "client/fan_out_call.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/stop_latch.h"
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"
#include "rpc/event_poller.h"

namespace torchps {

// Polls for rounds of calls on one completion queue, any number at a time. A thread that waits for
// a round polls for all of them meanwhile, so that an answer is dealt with by the thread that wants
// it. When none waits, a thread of the loop's own polls. One thread polls at a time. Another one
// that wants something of a round says so by Post(), so a round needs no lock and what happens to
// it happens in one order.
//
// Thread-safe, but for Await(), which is for one thread at a time.
class CallLoop {
 public:
  // When what is posted has to happen while no thread polls.
  enum class Urgency {
    kNow,
    // With whatever comes next: for a thread that is about to Await(). It wakes none.
    kSoon,
  };

  struct Options {
    // Both borrowed.
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    // A thread that has what it waited for may well wait again soon: no thread polls for so
    // long then, unless something is under way or is posted that has to happen now.
    absl::Duration linger = absl::Milliseconds(100);
  };

  explicit CallLoop(Options options);
  // REQUIRES: every round has finished, and no thread posts any more.
  ~CallLoop();
  CallLoop(const CallLoop&) = delete;
  CallLoop& operator=(const CallLoop&) = delete;

  // Starts a round and keeps it alive until the Advance() that finishes it has returned.
  void Begin(std::shared_ptr<FanOutCall> round, Urgency urgency = Urgency::kNow);

  // Runs `work` on the thread that polls, after all that was posted before. It must not block.
  void Post(std::function<void()> work, Urgency urgency = Urgency::kNow);

  // Blocks until `round`, which was begun, has finished; returns its outcome.
  absl::Status Await(const FanOutCall& round);

  // Whether a thread polls just now, and so looks after the connections: for tests.
  bool is_polled() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return is_polled_;
  }

 private:
  // Wakes the polling thread for what was posted. An alarm without delay is gRPC's way to put an
  // event of one's own on a queue. It outlives its event: one that was destroyed at the moment it
  // went off crashed gRPC 1.51 on its timer's thread.
  class Wake final : public QueueEvent {
   public:
    explicit Wake(CallLoop* loop) : loop_(loop) {}
    void Set(grpc::CompletionQueue* queue);
    void Happened(bool) override { loop_->Woken(); }

   private:
    CallLoop* const loop_;
    grpc::Alarm alarm_;
  };

  // The loop's own thread.
  void Run();
  // Whether that thread has to wait, since another one polls or is about to.
  bool MustPark(uint64_t* polls_seen) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What follows is for the thread that polls.

  void PollUntil(absl::FunctionRef<bool()> is_enough) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunPosted() ABSL_LOCKS_EXCLUDED(mutex_);
  void Woken() ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets every round do what is due, drops those that have finished. Returns when the next thing
  // is due, infinite where there is none.
  absl::Duration AdvanceRounds();
  // Waits for the next event, until `wake_at` at most.
  void AwaitEvent(absl::Duration wake_at);

  const Options options_;
  grpc::CompletionQueue queue_;
  Wake wake_{this};

  mutable Mutex mutex_;
  // Signalled when the loop's own thread may have to poll, and when no thread polls any more.
  CondVar may_poll_, is_free_;
  bool is_polled_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_waited_for_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // How often a thread that waited has polled.
  uint64_t polls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  // The wake's event is on its way: it must not be set a second time, and need not be.
  bool is_waking_ ABSL_GUARDED_BY(mutex_) = false;

  // Of the thread that polls; while none does, of the one that holds the lock.
  EventPoller events_{&queue_};
  std::vector<std::shared_ptr<FanOutCall>> rounds_;

  std::thread thread_;
  std::optional<StopLatch::Registration> on_stop_;
};

}  // namespace torchps
