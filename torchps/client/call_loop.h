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
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"
#include "torchps/client/calls/client_call.h"
#include "torchps/client/fan_out_call.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/stop_latch.h"
#include "torchps/transport/event_poller.h"

namespace torchps {

// Polls one completion queue for any number of rounds. A round here is a FanOutCall: one call to
// each of several servers. A thread that waits for a round polls for all rounds, so that it handles
// the reply itself. While no thread waits, the loop's thread polls. Only one thread polls at a
// time. Other threads use Post() to act on a round. So rounds need no lock, and their events are
// strictly ordered.
//
// Thread-safe, except that only one thread at a time may call Await().
class CallLoop {
 public:
  // When posted work must run if no thread polls.
  enum class Urgency {
    kNow,  // at once; wakes a thread
    // The work waits for the next event, and no thread wakes for it. For threads that are about to
    // call Await().
    kSoon,
  };

  struct Options {
    // Both borrowed.
    const Clock* clock = nullptr;
    StopLatch* stop = nullptr;
    // After a thread finishes Await(), it often waits again soon. For this time the loop's thread
    // does not poll, unless rounds are in progress or kNow work was posted.
    absl::Duration linger = absl::Milliseconds(100);
  };

  explicit CallLoop(Options options);
  // REQUIRES: all rounds are finished, and no thread calls Post() any more.
  ~CallLoop();
  CallLoop(const CallLoop&) = delete;
  CallLoop& operator=(const CallLoop&) = delete;

  // Starts `round`. Keeps it alive until it has finished and its last Advance() call has returned.
  void Begin(std::shared_ptr<FanOutCall> round, Urgency urgency = Urgency::kNow);

  // Runs `work` on the polling thread, after all work posted before. `work` must not block.
  void Post(std::function<void()> work, Urgency urgency = Urgency::kNow);

  // Blocks until `round` finishes, and returns round.outcome(). REQUIRES: Begin(round) was called.
  absl::Status Await(const FanOutCall& round);

  // For tests: true if a thread is polling now and thus maintains the connections.
  bool is_polled() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return is_polled_;
  }

 private:
  // Wakes the polling thread for posted work. An alarm without delay is the gRPC way to put a
  // custom event on a queue. The alarm outlives the event: gRPC 1.51 crashed on the timer thread
  // when an alarm was destroyed just as it fired.
  class Wake final : public QueueEvent {
   public:
    explicit Wake(CallLoop* loop) : loop_(loop) {}
    void Set(grpc::CompletionQueue* queue);
    void Happened(bool) override { loop_->Woken(); }

   private:
    CallLoop* const loop_;
    grpc::Alarm alarm_;
  };

  // Body of the loop's thread.
  void Run();
  // True if the loop's thread must wait because another thread polls or is about to poll.
  bool MustPark(uint64_t* polls_seen) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The following functions are called on the polling thread only.

  void PollUntil(absl::FunctionRef<bool()> is_enough) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunPosted() ABSL_LOCKS_EXCLUDED(mutex_);
  void Woken() ABSL_LOCKS_EXCLUDED(mutex_);
  // Advances all rounds and drops the finished rounds. Returns the time of the next due action;
  // infinite if there is none.
  absl::Duration AdvanceRounds();
  // Waits for the next event, at most until `wake_at`.
  void AwaitEvent(absl::Duration wake_at);

  const Options options_;
  grpc::CompletionQueue queue_;
  Wake wake_{this};

  mutable Mutex mutex_;
  // may_poll_ is signalled when the loop's thread may need to poll, is_free_ when it stops polling.
  CondVar may_poll_, is_free_;
  bool is_polled_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_waited_for_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Number of times that a waiting thread polled.
  uint64_t polls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  // True while the wake event is pending; it must not be set again before it fires.
  bool is_waking_ ABSL_GUARDED_BY(mutex_) = false;

  // Used by the polling thread, or by the lock holder if no thread polls.
  EventPoller events_{&queue_};
  std::vector<std::shared_ptr<FanOutCall>> rounds_;

  std::thread thread_;
  std::optional<StopLatch::Registration> on_stop_;
};

}  // namespace torchps
