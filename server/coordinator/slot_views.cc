#include "server/coordinator/slot_views.h"

#include <algorithm>
#include <utility>

namespace torchps {

bool SlotViews::Hear(SlotId slot, const std::vector<int>& silent, absl::Duration standing,
                     absl::Duration now) {
  View& view = views_[slot];
  view.heard = now;
  view.standing = standing;
  std::map<int, absl::Duration> since;
  for (const int server : silent) {
    const auto known = view.silent_since.find(server);
    since[server] = known == view.silent_since.end() ? now : known->second;
  }
  view.silent_since = std::move(since);
  return std::any_of(view.silent_since.begin(), view.silent_since.end(), [&](const auto& entry) {
    return OthersReach(slot, entry.first, entry.second, now);
  });
}

bool SlotViews::OthersReach(SlotId slot, int server, absl::Duration since,
                            absl::Duration now) const {
  // Two slots that hear nothing of a server from the same moment on say so up to two renewals
  // apart.
  const absl::Duration late_enough = since + lease_ * 2 / 3;
  return std::any_of(views_.begin(), views_.end(), [&](const auto& entry) {
    const View& view = entry.second;
    return entry.first != slot && view.heard >= late_enough && view.heard > now - lease_ &&
           view.silent_since.count(server) == 0;
  });
}

absl::Duration SlotViews::standing(SlotId slot) const {
  const auto view = views_.find(slot);
  return view == views_.end() ? absl::ZeroDuration() : view->second.standing;
}

}  // namespace torchps
