#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"
#include "worker/call_round.h"
#include "worker/client_call.h"
#include "worker/stop_latch.h"

namespace torchps {

// A worker's communication thread: polls one completion queue and drives all rounds of calls on it,
// any number at a time. Whoever wants something of a round says so by Post(), so a round needs no
// lock and what happens to it happens in one order.
//
// Begin() and Post() are thread-safe. Borrows clock and latch.
class CallLoop {
 public:
  // The thread asks for the next event for `ask_for` before it sleeps (proto/next_event.h).
  CallLoop(const Clock* clock, StopLatch* stop, absl::Duration ask_for = absl::ZeroDuration());
  // REQUIRES: every round has finished, and nobody posts any more.
  ~CallLoop();
  CallLoop(const CallLoop&) = delete;
  CallLoop& operator=(const CallLoop&) = delete;

  // Starts a round on the loop's thread and keeps it alive until the Advance() that finishes it has
  // returned.
  void Begin(std::shared_ptr<CallRound> round);

  // Runs `work` on the loop's thread, after all that was posted before. It must not block.
  void Post(std::function<void()> work);

 private:
  // Wakes the thread for what was posted. An alarm without delay is gRPC's way to put an event of
  // one's own on a queue. It outlives its event: one that was destroyed at the moment it went off
  // crashed gRPC 1.51 on its timer's thread.
  class Wake final : public QueueEvent {
   public:
    explicit Wake(CallLoop* loop) : loop_(loop) {}
    void Set(grpc::CompletionQueue* queue);
    void Happened(bool) override { loop_->RunPosted(); }

   private:
    CallLoop* const loop_;
    grpc::Alarm alarm_;
  };

  void Run();
  void RunPosted() ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets every round do what is due, drops those that have finished. Returns when the next thing
  // is due, infinite where there is none.
  absl::Duration AdvanceRounds();

  // Waits for the next event, until `wake_at` at most.
  void AwaitEvent(absl::Duration wake_at);

  const Clock* const clock_;
  const absl::Duration ask_for_;
  grpc::CompletionQueue queue_;
  Wake wake_{this};

  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  // The wake's event is on its way: it must not be set a second time, and need not be.
  bool is_waking_ ABSL_GUARDED_BY(mutex_) = false;

  // Of the loop's thread.
  std::vector<std::shared_ptr<CallRound>> rounds_;
  bool stopping_ = false;

  std::thread thread_;
  std::optional<StopLatch::Registration> on_stop_;
};

}  // namespace torchps
