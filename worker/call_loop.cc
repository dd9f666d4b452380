#include "worker/call_loop.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/check.h"
#include "grpc/support/time.h"
#include "proto/next_event.h"

namespace torchps {

void CallLoop::Wake::Set(grpc::CompletionQueue* queue) {
  // Any later time would be rounded up to the next millisecond and go through gRPC's timers.
  alarm_.Set(queue, gpr_inf_past(GPR_CLOCK_REALTIME), static_cast<QueueEvent*>(this));
}

CallLoop::CallLoop(const Clock* clock, StopLatch* stop, absl::Duration ask_for)
    : clock_(clock), ask_for_(ask_for) {
  thread_ = std::thread([this] { Run(); });
  // Rounds ask the latch themselves whenever they are advanced.
  on_stop_.emplace(stop, [this] { Post([] {}); });
}

CallLoop::~CallLoop() {
  on_stop_.reset();
  Post([this] { stopping_ = true; });
  thread_.join();
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

void CallLoop::Begin(std::shared_ptr<CallRound> round) {
  Post([this, round = std::move(round)] {
    round->Begin(&queue_);
    rounds_.push_back(round);
  });
}

void CallLoop::Post(std::function<void()> work) {
  MutexLock lock(&mutex_);
  posted_.push_back(std::move(work));
  if (is_waking_) return;
  is_waking_ = true;
  wake_.Set(&queue_);
}

void CallLoop::RunPosted() {
  std::vector<std::function<void()>> posted;
  {
    MutexLock lock(&mutex_);
    is_waking_ = false;
    posted.swap(posted_);
  }
  for (const std::function<void()>& work : posted) work();
}

void CallLoop::Run() {
  while (!stopping_) {
    const absl::Duration wake_at = AdvanceRounds();
    AwaitEvent(wake_at);
  }
  TPS_CHECK(rounds_.empty(), "a round outlived its loop");
}

void CallLoop::AwaitEvent(absl::Duration wake_at) {
  void* tag = nullptr;
  bool ok = false;
  const absl::Time deadline = absl::Now() + (wake_at - clock_->Now());
  const auto next = NextEvent(&queue_, ask_for_, deadline, &tag, &ok);
  TPS_CHECK(next != grpc::CompletionQueue::SHUTDOWN, "the queue outlives the loop's thread");
  if (next == grpc::CompletionQueue::GOT_EVENT) static_cast<QueueEvent*>(tag)->Happened(ok);
}

absl::Duration CallLoop::AdvanceRounds() {
  absl::Duration next = absl::InfiniteDuration();
  for (const std::shared_ptr<CallRound>& round : rounds_) {
    next = std::min(next, round->Advance());
  }
  const auto has_finished = [](const std::shared_ptr<CallRound>& round) {
    return round->finished();
  };
  rounds_.erase(std::remove_if(rounds_.begin(), rounds_.end(), has_finished), rounds_.end());
  return next;
}

}  // namespace torchps
