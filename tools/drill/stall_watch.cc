#include "tools/drill/stall_watch.h"

#include <algorithm>
#include <utility>

namespace torchps {

void StallWatch::OnProgress(int worker, absl::Duration now) {
  const auto last = last_progress_.find(worker);
  if (last == last_progress_.end()) {
    last_progress_[worker] = now;
    return;
  }
  const absl::Duration since = std::exchange(last->second, now);
  longest_ = std::max(longest_, now - since);
  std::set<std::string> meanwhile;
  for (const Episode& episode : episodes_) {
    if (episode.ended < since || episode.began > now) continue;
    // The fault explains the stall of a worker that it hit.
    if (episode.hit.count(worker) > 0) return;
    meanwhile.insert(episode.kind);
  }
  for (const std::string& kind : meanwhile) {
    absl::optional<absl::Duration>& longest = by_kind_[kind].longest_stall;
    longest = std::max(longest.value_or(absl::ZeroDuration()), now - since);
  }
}

void StallWatch::OnDone(int worker, absl::Duration now) {
  OnProgress(worker, now);
  last_progress_.erase(worker);
}

int StallWatch::Begin(absl::string_view kind, std::set<int> hit, absl::Duration now) {
  ++by_kind_[std::string(kind)].times;
  episodes_.push_back({std::string(kind), std::move(hit), now});
  return static_cast<int>(episodes_.size()) - 1;
}

void StallWatch::End(int fault, absl::Duration now) {
  episodes_[static_cast<size_t>(fault)].ended = now;
}

}  // namespace torchps
