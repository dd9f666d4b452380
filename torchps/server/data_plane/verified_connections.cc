#include "torchps/server/data_plane/verified_connections.h"

#include <algorithm>

namespace torchps {

void VerifiedConnections::RecordCall(const std::string& connection, SlotId slot,
                                     Incarnation incarnation) {
  if (connection.empty()) return;
  const absl::Duration now = clock_->Now();
  MutexLock lock(&mutex_);
  if (speakers_.size() >= kMax && !speakers_.contains(connection)) ForgetLongestUnheard();
  speakers_[connection] = {slot, incarnation, now};
}

bool VerifiedConnections::Knows(const std::string& connection) const {
  if (connection.empty()) return true;
  MutexLock lock(&mutex_);
  return speakers_.contains(connection);
}

void VerifiedConnections::Forget(absl::FunctionRef<bool(SlotId, Incarnation)> is_live,
                                 absl::Duration patience) {
  const absl::Duration now = clock_->Now();
  MutexLock lock(&mutex_);
  absl::erase_if(speakers_, [&](const auto& entry) {
    const Speaker& speaker = entry.second;
    return now - speaker.heard >= patience || !is_live(speaker.slot, speaker.incarnation);
  });
}

void VerifiedConnections::ForgetLongestUnheard() {
  speakers_.erase(std::min_element(
      speakers_.begin(), speakers_.end(),
      [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; }));
}

}  // namespace torchps
