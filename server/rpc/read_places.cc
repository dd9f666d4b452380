#include "server/rpc/read_places.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"

namespace torchps {
namespace {

void Run(const std::vector<ReadPlaces::Continuation>& served) {
  for (const ReadPlaces::Continuation& go : served) go();
}

}  // namespace

bool ReadPlaces::Ask(Stint* stint, int64_t bytes, int64_t to_come_bytes,
                     const std::string& connection, Continuation go) {
  std::vector<Continuation> served;
  bool may_read = true;
  {
    MutexLock lock(&mutex_);
    stint->connection = connection;
    stint->to_come_bytes = to_come_bytes;
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
  // May be the last to refer to the stream.
  Continuation given_up;
  std::vector<Continuation> served;
  {
    MutexLock lock(&mutex_);
    const auto in_line = std::find_if(line_.begin(), line_.end(), [stint](const InLine& candidate) {
      return candidate.stint == stint;
    });
    if (in_line != line_.end()) {
      given_up = std::move(in_line->go);
      line_.erase(in_line);
    }
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

bool ReadPlaces::reads_long() const {
  MutexLock lock(&mutex_);
  return absl::c_any_of(holders_,
                        [](const Stint* holder) { return holder->to_come_bytes >= kLongBytes; });
}

void ReadPlaces::PassOn(absl::Duration asked) {
  std::vector<Continuation> served;
  {
    MutexLock lock(&mutex_);
    if (line_.empty()) return;
    for (size_t i = holders_.size(); i > 0; --i) {
      if (holders_[i - 1]->late <= asked) GiveUpPlace(holders_[i - 1]);
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
  std::vector<absl::string_view> connections;
  for (const Stint* const holder : holders_) {
    if (holder->connection == stint.connection) return true;
    if (!absl::c_linear_search(connections, holder->connection)) {
      connections.push_back(holder->connection);
    }
  }
  return connections.size() < places_;
}

void ReadPlaces::Begin(Stint* stint, int64_t bytes) {
  stint->left_bytes = kStintBytes;
  stint->longest = clock_->Now() + kLongestStint;
  stint->has_place = true;
  holders_.push_back(stint);
  Continue(stint, bytes);
}

void ReadPlaces::Continue(Stint* stint, int64_t bytes) {
  stint->left_bytes -= bytes;
  stint->late = std::min(clock_->Now() + kPatience, stint->longest);
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
