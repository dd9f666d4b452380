#include "torchps/server/coordinator/slot_views.h"

#include <algorithm>
#include <utility>

namespace torchps {
namespace {

// Fractions of a lease. SlotViews explains the first two. A longer pause than kStoodStill between
// two calls of Pass() means that the process was suspended.
constexpr double kLater = 1.0 / 4;
constexpr double kLately = 1.0 / 2;
constexpr double kStoodStill = 1.0 / 2;
// Reports are ignored for this time after a suspension. It is longer than the deadline of a
// RenewSlot call, at most a ninth of a lease, so that older calls have arrived or failed by then.
constexpr double kBlind = 1.0 / 8;
// For a short lease, half of it could be normal scheduling delay of a busy machine.
constexpr absl::Duration kLeastStandstill = absl::Milliseconds(500);

}  // namespace

bool SlotViews::RecordRenewal(SlotId slot, std::map<int, Contact> contacts,
                              absl::Duration stalled_for, absl::Duration now) {
  if (now < blind_until_) contacts.clear();
  View& view = views_[slot];
  view.stalled_for = stalled_for;
  view.contacts = std::move(contacts);
  return std::any_of(view.contacts.begin(), view.contacts.end(), [&](const auto& entry) {
    return IsCutOff(slot, entry.first, entry.second, now);
  });
}

bool SlotViews::IsCutOff(SlotId slot, int server, const Contact& own, absl::Duration now) const {
  if (!own.missed.has_value() || now - own.answered < lease_) return false;
  return std::any_of(views_.begin(), views_.end(), [&](const auto& entry) {
    const auto found = entry.second.contacts.find(server);
    if (entry.first == slot || found == entry.second.contacts.end()) return false;
    const Contact& other = found->second;
    return other.first_reached.has_value() && now - *other.first_reached >= lease_ &&
           now - other.last_reached <= lease_ * kLately &&
           other.last_reached - *own.missed >= lease_ * kLater;
  });
}

void SlotViews::Pass(absl::Duration now) {
  const absl::Duration most = std::max(lease_ * kStoodStill, kLeastStandstill);
  if (passed_.has_value() && now - *passed_ > most) {
    blind_until_ = now + lease_ * kBlind;
    for (auto& [slot, view] : views_) view.contacts.clear();
  }
  passed_ = now;
}

absl::Duration SlotViews::stalled_for(SlotId slot) const {
  const auto view = views_.find(slot);
  return view == views_.end() ? absl::ZeroDuration() : view->second.stalled_for;
}

}  // namespace torchps
