#include "torchps/server/parked/byte_budget.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "torchps/common/check.h"

namespace torchps {

ByteBudget::Waiting ByteBudget::Take(int64_t bytes, Continuation granted) {
  MutexLock lock(&mutex_);
  if (line_.empty() && Fits(bytes)) {
    Hold(bytes);
    return 0;
  }
  line_.push_back({++last_name_, bytes, std::move(granted)});
  return last_name_;
}

bool ByteBudget::TryTake(int64_t bytes) {
  MutexLock lock(&mutex_);
  if (!line_.empty() || !Fits(bytes)) return false;
  Hold(bytes);
  return true;
}

void ByteBudget::GiveBack(int64_t bytes) {
  std::vector<Continuation> served;
  {
    MutexLock lock(&mutex_);
    TPS_CHECK(bytes <= held_, "more bytes are returned than were reserved");
    held_ -= bytes;
    served = Serve();
  }
  Run(std::move(served));
}

bool ByteBudget::Leave(Waiting waiting) {
  std::vector<Continuation> served;
  {
    MutexLock lock(&mutex_);
    const auto place = std::find_if(line_.begin(), line_.end(), [waiting](const Place& candidate) {
      return candidate.name == waiting;
    });
    if (place == line_.end()) return false;
    line_.erase(place);
    // The erased waiter may have blocked smaller requests behind it.
    served = Serve();
  }
  Run(std::move(served));
  return true;
}

bool ByteBudget::Fits(int64_t bytes) const { return held_ == 0 || held_ + bytes <= capacity_; }

void ByteBudget::Hold(int64_t bytes) {
  held_ += bytes;
  high_water_ = std::max(high_water_, held_);
}

std::vector<ByteBudget::Continuation> ByteBudget::Serve() {
  std::vector<Continuation> served;
  while (!line_.empty() && Fits(line_.front().bytes)) {
    Hold(line_.front().bytes);
    served.push_back(std::move(line_.front().granted));
    line_.pop_front();
  }
  return served;
}

void ByteBudget::Run(std::vector<Continuation> served) {
  if (served.empty()) return;
  Runner here{std::this_thread::get_id(), {}};
  {
    MutexLock lock(&mutex_);
    const auto outer = std::find_if(runners_.begin(), runners_.end(), [&here](const Runner* one) {
      return one->thread == here.thread;
    });
    std::deque<Continuation>& due = outer == runners_.end() ? here.due : (*outer)->due;
    for (Continuation& granted : served) due.push_back(std::move(granted));
    if (outer != runners_.end()) return;
    runners_.push_back(&here);
  }
  // Only this thread adds to here.due.
  while (!here.due.empty()) {
    const Continuation granted = std::move(here.due.front());
    here.due.pop_front();
    granted();
  }
  MutexLock lock(&mutex_);
  runners_.erase(std::find(runners_.begin(), runners_.end(), &here));
}

bool ByteBudget::waits() const {
  MutexLock lock(&mutex_);
  return !line_.empty();
}

int64_t ByteBudget::held() const {
  MutexLock lock(&mutex_);
  return held_;
}

int64_t ByteBudget::high_water() const {
  MutexLock lock(&mutex_);
  return high_water_;
}

}  // namespace torchps
