#pragma once

#include <map>
#include <optional>

#include "absl/time/time.h"
#include "torchps/common/types.h"

namespace torchps {

// Tracks the status that live slots report with each renewal: the last contact with each server,
// and the duration of the trainer's current piece of work. This class uses the contacts to find
// slots that are cut off from a server that other slots reach. Other slots should not wait for such
// a slot. If a server answers no slot, the server is down, and all slots wait for it.
//
// A slot is cut off from a server if
//   - the server has not answered the slot for a lease, and
//   - the server has answered all renewals of some other slot for a lease, and
//   - the last of these renewals began at most half a lease ago, and at least a quarter of a lease
//     after the first renewal that the cut-off slot missed.
// The last condition excludes a server that is down: it would not have answered a renewal that
// began so much later. The quarter allows for the server's response time and the delay of a
// request to the coordinator.
//
// Not thread-safe. The caller passes the time, which must not decrease.
class SlotViews {
 public:
  // Results of a slot's renewals at one server, in the coordinator's time. Each time may be later
  // than the true one, by at most the delay of the RenewSlot request. The series is the run of
  // answered renewals without a miss up to the latest renewal. It is empty if the latest one was
  // not answered.
  struct Contact {
    absl::Duration answered;               // last answered renewal
    std::optional<absl::Duration> missed;  // start of the first unanswered renewal since then
    std::optional<absl::Duration> first_reached;  // start of the series' first renewal
    absl::Duration last_reached;                  // start of the series' last renewal
  };

  // Each slot renews at least three times in `lease`, and eight times while a server does not
  // answer.
  explicit SlotViews(absl::Duration lease) : lease_(lease) {}

  // Records a report of `slot` for each server that admitted the slot. Returns true if the slot is
  // cut off from one of them.
  bool RecordRenewal(SlotId slot, std::map<int, Contact> contacts, absl::Duration stalled_for,
                     absl::Duration now);

  // Must be called often. A long pause between two calls means that this process was suspended. The
  // reports that arrive just after the pause may be old, so they are ignored for a short time.
  void Pass(absl::Duration now);

  // Removes the slot's reports.
  void Forget(SlotId slot) { views_.erase(slot); }

  // Returns the duration of the trainer's current piece of work as last reported; zero if the slot
  // is idle or has not reported.
  absl::Duration stalled_for(SlotId slot) const;

 private:
  struct View {
    absl::Duration stalled_for;
    std::map<int, Contact> contacts;  // by server
  };

  bool IsCutOff(SlotId slot, int server, const Contact& own, absl::Duration now) const;

  const absl::Duration lease_;
  std::optional<absl::Duration> passed_;
  absl::Duration blind_until_ = -absl::InfiniteDuration();
  std::map<SlotId, View> views_;
};

}  // namespace torchps
