#include "torchps/client/call_loop.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "grpc/support/time.h"
#include "torchps/common/check.h"

namespace torchps {

void CallLoop::Wake::Set(grpc::CompletionQueue* queue) {
  // This time has passed, so the alarm fires at once. gRPC would round a later time up to the next
  // millisecond and use its timers.
  alarm_.Set(queue, gpr_inf_past(GPR_CLOCK_REALTIME), static_cast<QueueEvent*>(this));
}

CallLoop::CallLoop(Options options) : options_(options) {
  thread_ = std::thread([this] { Run(); });
  // A stop posts empty work, which wakes the polling thread. Each round checks the latch in
  // Advance().
  on_stop_.emplace(options_.stop, [this] { Post([] {}); });
}

CallLoop::~CallLoop() {
  on_stop_.reset();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Post([] {});
  thread_.join();
  TPS_CHECK(rounds_.empty(), "a round outlived its loop");
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

void CallLoop::Begin(std::shared_ptr<FanOutCall> round, Urgency urgency) {
  Post(
      [this, round = std::move(round)] {
        round->Begin(&queue_);
        rounds_.push_back(round);
      },
      urgency);
}

void CallLoop::Post(std::function<void()> work, Urgency urgency) {
  MutexLock lock(&mutex_);
  posted_.push_back(std::move(work));
  if (!is_polled_) {
    if (urgency == Urgency::kNow) may_poll_.Signal();
  } else if (!is_waking_) {
    is_waking_ = true;
    wake_.Set(&queue_);
  }
}

absl::Status CallLoop::Await(const FanOutCall& round) {
  {
    MutexLock lock(&mutex_);
    is_waited_for_ = true;
    // If the loop's thread polls, it sees is_waited_for_ after the next event and stops.
    while (is_polled_ && !round.finished()) is_free_.Wait(&mutex_);
    is_waited_for_ = false;
    if (is_polled_) return round.outcome();
    is_polled_ = true;
    ++polls_;
  }
  PollUntil([&round] { return round.finished(); });
  MutexLock lock(&mutex_);
  is_polled_ = false;
  if (!rounds_.empty() || !posted_.empty()) may_poll_.Signal();
  return round.outcome();
}

void CallLoop::Run() {
  uint64_t polls_seen = 0;
  while (true) {
    {
      MutexLock lock(&mutex_);
      while (MustPark(&polls_seen)) may_poll_.WaitFor(&mutex_, options_.linger);
      if (stopping_) return;
      is_polled_ = true;
    }
    PollUntil([this] {
      MutexLock lock(&mutex_);
      return stopping_ || is_waited_for_;
    });
    MutexLock lock(&mutex_);
    is_polled_ = false;
    is_free_.Signal();
  }
}

bool CallLoop::MustPark(uint64_t* polls_seen) {
  if (stopping_) return false;
  if (is_polled_ || is_waited_for_) return true;
  if (!rounds_.empty() || !posted_.empty()) return false;
  // If a thread waited in Await() since the last check, it will probably wait again soon. Otherwise
  // the loop's thread must poll to maintain the connections.
  return std::exchange(*polls_seen, polls_) != polls_;
}

void CallLoop::PollUntil(absl::FunctionRef<bool()> is_enough) {
  while (true) {
    RunPosted();
    const absl::Duration wake_at = AdvanceRounds();
    if (is_enough()) return;
    AwaitEvent(wake_at);
  }
}

void CallLoop::RunPosted() {
  std::vector<std::function<void()>> posted;
  {
    MutexLock lock(&mutex_);
    posted.swap(posted_);
  }
  for (const std::function<void()>& work : posted) work();
}

void CallLoop::Woken() {
  MutexLock lock(&mutex_);
  is_waking_ = false;
}

void CallLoop::AwaitEvent(absl::Duration wake_at) {
  void* tag = nullptr;
  bool ok = false;
  const absl::Time deadline = absl::Now() + (wake_at - options_.clock->Now());
  const auto next = events_.Await(deadline, &tag, &ok);
  TPS_CHECK(next != grpc::CompletionQueue::SHUTDOWN, "the queue outlives the thread that polls it");
  if (next == grpc::CompletionQueue::GOT_EVENT) static_cast<QueueEvent*>(tag)->Happened(ok);
}

absl::Duration CallLoop::AdvanceRounds() {
  absl::Duration next = absl::InfiniteDuration();
  for (const std::shared_ptr<FanOutCall>& round : rounds_) {
    next = std::min(next, round->Advance());
  }
  const auto has_finished = [](const std::shared_ptr<FanOutCall>& round) {
    return round->finished();
  };
  rounds_.erase(std::remove_if(rounds_.begin(), rounds_.end(), has_finished), rounds_.end());
  return next;
}

}  // namespace torchps
