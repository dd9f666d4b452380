#include "torchps/server/rpc/poller.h"

#include <utility>

#include "absl/time/time.h"

namespace torchps {

void RoundRobin::Enter(CompletionTag* tag) {
  MutexLock lock(&mutex_);
  if (line_.empty()) polls_ = 0;
  line_.push_back(tag);
}

CompletionTag* RoundRobin::Next() {
  MutexLock lock(&mutex_);
  if (line_.empty() || polls_ < kPolls) return nullptr;
  polls_ = 0;
  CompletionTag* const first = line_.front();
  line_.pop_front();
  return first;
}

void RoundRobin::Polled(bool was_long) {
  MutexLock lock(&mutex_);
  polls_ = was_long ? kPolls : polls_ + 1;
}

bool RoundRobin::waits() const {
  MutexLock lock(&mutex_);
  return !line_.empty();
}

Poller::Poller(std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : queue_(std::move(queue)), events_(queue_.get()), use_(this, [this](const void*) {
        MutexLock lock(&mutex_);
        is_unused_ = true;
        unused_.SignalAll();
      }) {}

Poller::~Poller() { Stop(); }

void Poller::Start(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

void Poller::Stop() {
  if (use_ == nullptr) return;
  use_.reset();
  {
    MutexLock lock(&mutex_);
    while (!is_unused_) unused_.Wait(&mutex_);
  }
  queue_->Shutdown();
  if (threads_.empty()) Run();
  for (std::thread& thread : threads_) thread.join();
}

void Poller::Run() {
  while (true) {
    CompletionTag* tag = nullptr;
    bool ok = false;
    {
      MutexLock lock(&polling_);
      do {
        if (tag != nullptr) tag->Proceed(ok);
        tag = AwaitTask(&ok);
        if (tag == nullptr) return;
      } while (!tag->is_long());
    }
    tag->Proceed(ok);
  }
}

CompletionTag* Poller::AwaitTask(bool* ok) {
  while (true) {
    if (CompletionTag* const turn = turns_.Next(); turn != nullptr) {
      *ok = true;
      return turn;
    }
    void* next = nullptr;
    const auto answer =
        turns_.waits() ? events_.Poll(&next, ok) : events_.Await(absl::InfiniteFuture(), &next, ok);
    if (answer == grpc::CompletionQueue::SHUTDOWN) return nullptr;
    // Without an event, `next` may hold an internal gRPC tag.
    const bool got_event = answer == grpc::CompletionQueue::GOT_EVENT;
    auto* const event = got_event ? static_cast<CompletionTag*>(next) : nullptr;
    turns_.Polled(event != nullptr && event->is_long());
    if (event != nullptr) return event;
  }
}

}  // namespace torchps
