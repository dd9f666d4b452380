#include "server/rpc/read_places.h"

#include <algorithm>
#include <utility>

namespace torchps {
namespace {

void Run(const std::vector<ReadPlaces::Continuation>& served) {
  for (const ReadPlaces::Continuation& go : served) go();
}

}  // namespace

bool ReadPlaces::Ask(Stint* stint, int64_t bytes, const std::string& connection, Continuation go) {
  std::vector<Continuation> served;
  bool may_read = true;
  {
    MutexLock lock(&mutex_);
    stint->connection = connection;
    if (stint->left_bytes > 0) {
      Continue(stint, bytes);
    } else {
      GiveUpPlace(stint);
      if (poller_sleeps_ || (line_.empty() && HasPlaceFor(*stint))) {
        Begin(stint, bytes);
      } else {
        line_.push_back({stint, bytes, std::move(go)});
        may_read = false;
      }
    }
    served = Serve();
  }
  Run(served);
  return may_read;
}

void ReadPlaces::Came(Stint* stint) {
  MutexLock lock(&mutex_);
  stint->late = absl::InfiniteDuration();
}

void ReadPlaces::Leave(Stint* stint) {
  std::vector<Continuation> served;
  {
    MutexLock lock(&mutex_);
    stint->left_bytes = 0;
    stint->late = absl::InfiniteDuration();
    GiveUpPlace(stint);
    served = Serve();
  }
  Run(served);
}

bool ReadPlaces::waits() const {
  MutexLock lock(&mutex_);
  return !line_.empty();
}

void ReadPlaces::PassOn() {
  std::vector<Continuation> served;
  {
    MutexLock lock(&mutex_);
    if (line_.empty()) return;
    const absl::Duration now = clock_->Now();
    for (size_t i = holders_.size(); i > 0; --i) {
      if (holders_[i - 1]->late <= now) GiveUpPlace(holders_[i - 1]);
    }
    served = Serve();
  }
  Run(served);
}

void ReadPlaces::NothingCame() {
  Continuation go;
  {
    MutexLock lock(&mutex_);
    if (line_.empty()) return;
    go = ServeFirst();
  }
  go();
}

bool ReadPlaces::BeginSleep() {
  MutexLock lock(&mutex_);
  poller_sleeps_ = line_.empty();
  return poller_sleeps_;
}

void ReadPlaces::EndSleep() {
  MutexLock lock(&mutex_);
  poller_sleeps_ = false;
}

bool ReadPlaces::HasPlaceFor(const Stint& stint) const {
  if (holders_.size() < places_) return true;
  return std::any_of(holders_.begin(), holders_.end(), [&stint](const Stint* holder) {
    return holder->connection == stint.connection;
  });
}

void ReadPlaces::Begin(Stint* stint, int64_t bytes) {
  stint->left_bytes = kStintBytes;
  stint->has_place = true;
  holders_.push_back(stint);
  Continue(stint, bytes);
}

void ReadPlaces::Continue(Stint* stint, int64_t bytes) {
  stint->left_bytes -= bytes;
  stint->late = clock_->Now() + kPatience;
}

void ReadPlaces::GiveUpPlace(Stint* stint) {
  if (!stint->has_place) return;
  stint->has_place = false;
  holders_.erase(std::find(holders_.begin(), holders_.end(), stint));
}

ReadPlaces::Continuation ReadPlaces::ServeFirst() {
  InLine first = std::move(line_.front());
  line_.pop_front();
  Begin(first.stint, first.bytes);
  return std::move(first.go);
}

std::vector<ReadPlaces::Continuation> ReadPlaces::Serve() {
  std::vector<Continuation> served;
  while (!line_.empty() && HasPlaceFor(*line_.front().stint)) served.push_back(ServeFirst());
  return served;
}

}  // namespace torchps
