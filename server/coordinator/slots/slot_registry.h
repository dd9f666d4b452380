#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "server/coordinator/slots/slot_holder.h"

namespace torchps {

// Which process holds each slot, and until when: gives out slots and incarnations and judges
// leases.
//
// A process is known by its nonce, a number it drew at its start. It holds its slot until its
// lease runs out or it leaves; either ends the incarnation for good, and the slot is free for
// another process (or the same one) under a higher incarnation.
//
// Not thread-safe. Time is handed in and must not go back; a lease that has run out counts until
// Expire() is called, which callers do first thing.
class SlotRegistry {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(10);
    // Incarnations rise by one from here, over all slots together. At least 1.
    Incarnation first_incarnation = 1;
  };

  explicit SlotRegistry(Options options);

  // What any Take() must bring. INVALID_ARGUMENT: `wanted` is neither a slot number nor -1, or the
  // nonce is 0.
  static absl::Status CheckWish(SlotId wanted, uint64_t nonce);

  // Gives the process with `nonce`, which runs on `host`, the slot `wanted`, or with -1 the lowest
  // free one. A process that holds a slot already gets the same answer again, and its lease is
  // renewed. REQUIRES: CheckWish(wanted, nonce) is OK.
  //   RESOURCE_EXHAUSTED   another process holds `wanted`, which may be dead: the message says
  //                        which, and for how long its lease still runs; or all slots are held
  absl::StatusOr<SlotHolder> Take(SlotId wanted, uint64_t nonce, const std::string& host,
                                  absl::Duration now);

  // The live holder of `slot` that is another process than the one with `nonce`; nullopt: none.
  absl::optional<SlotHolder> OtherHolder(SlotId slot, uint64_t nonce) const;

  // Renews the lease of `holder` up to `now` + lease. INVALID_ARGUMENT: no slot number. ABORTED:
  // this incarnation is over (or never was): join again.
  absl::Status Renew(SlotHolder holder, absl::Duration now);

  // Ends `holder`'s incarnation, if it is live.
  void Leave(SlotHolder holder);

  // Ends all incarnations whose lease has run out, and returns them in the order of their slots.
  std::vector<SlotHolder> Expire(absl::Duration now);

  bool IsLive(SlotHolder holder) const;

  // The number that the next incarnation gets.
  Incarnation next_incarnation() const { return next_incarnation_; }

  // That of the process that is `holder`; 0 where it is not live.
  uint64_t GetNonce(SlotHolder holder) const;

  // `holder` held its slot when another registry was at work, and does so again, with a whole lease
  // from `now`. DATA_LOSS: it cannot have, by its numbers or since another one does.
  absl::Status Restore(SlotHolder holder, uint64_t nonce, const std::string& host,
                       absl::Duration now);

 private:
  struct Hold {
    Incarnation incarnation = 0;
    uint64_t nonce = 0;
    std::string host;
    absl::Duration deadline;
  };

  const Options options_;
  Incarnation next_incarnation_;
  std::map<SlotId, Hold> live_;
};

}  // namespace torchps
