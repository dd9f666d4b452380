#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/types.h"

namespace torchps {

// Identifies one process's hold on one slot. An incarnation is never assigned twice within a job,
// so a former holder never returns under the same identity.
struct SlotHolder {
  SlotId slot = 0;
  Incarnation incarnation = 0;

  friend bool operator==(const SlotHolder& a, const SlotHolder& b) {
    return a.slot == b.slot && a.incarnation == b.incarnation;
  }
  friend bool operator<(const SlotHolder& a, const SlotHolder& b) {
    return std::tie(a.slot, a.incarnation) < std::tie(b.slot, b.incarnation);
  }
};

// Describes a slot with an expired lease at the coordinator, and the addresses of the servers to
// notify.
struct EvictedSlot {
  SlotHolder holder;
  std::vector<std::string> servers;  // in server order; empty if unknown
};

// Assigns slots and incarnations to processes, and tracks the leases.
//
// Processes are identified by a nonce that they draw at the start. A process holds the slot until
// the lease expires or the process leaves. Either ends the incarnation. After that, another process
// or the same one may hold the slot under a higher incarnation.
//
// Not thread-safe. The caller passes the time, which must not decrease. A holder stays live after
// the lease has expired until Expire() is called, so callers call Expire() first.
class SlotRegistry {
 public:
  struct Options {
    absl::Duration lease = absl::Seconds(10);
    // Incarnations rise by one from this value, across all slots. At least 1.
    Incarnation first_incarnation = 1;
  };

  explicit SlotRegistry(Options options);

  // Validates the arguments of Take(). Returns INVALID_ARGUMENT if `wanted` is neither a slot
  // number nor -1, or if the nonce is 0.
  static absl::Status CheckWish(SlotId wanted, uint64_t nonce);

  // Assigns the slot `wanted`, or with -1 the lowest free one, to the process with `nonce` on
  // `host`. If the process already holds a slot, it gets the same answer, and the lease is renewed.
  // REQUIRES: CheckWish(wanted, nonce) is OK.
  //   RESOURCE_EXHAUSTED   another process, possibly dead, holds `wanted`: the message names it and
  //                        the remaining lease time; or all slots are held
  absl::StatusOr<SlotHolder> Take(SlotId wanted, uint64_t nonce, const std::string& host,
                                  absl::Duration now);

  // Returns the live holder of `slot` if it is not the process with `nonce`; otherwise nullopt.
  std::optional<SlotHolder> OtherHolder(SlotId slot, uint64_t nonce) const;

  // Extends the holder's lease to `now` + lease. Returns INVALID_ARGUMENT for an invalid slot
  // number. Returns ABORTED if this incarnation has ended or never existed; the process must join
  // again.
  absl::Status Renew(SlotHolder holder, absl::Duration now);

  // Ends the holder's incarnation if it is live.
  void Leave(SlotHolder holder);

  // Ends all incarnations with an expired lease, and returns them ordered by slot.
  std::vector<SlotHolder> Expire(absl::Duration now);

  bool IsLive(SlotHolder holder) const;

  // Returns the number of the next incarnation.
  Incarnation next_incarnation() const { return next_incarnation_; }

  // Returns the nonce of the holder's process; 0 if the holder is not live.
  uint64_t GetNonce(SlotHolder holder) const;

  // Restores a holder from a saved registry, with a full lease from `now`. Returns DATA_LOSS if the
  // numbers are impossible or the slot is already held.
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
