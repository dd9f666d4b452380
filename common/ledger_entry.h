#pragma once

#include <cstdint>

#include "common/ids.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// What a block remembers of one slot: enough to apply each of its pushes at most once and to give
// a repeated one the answer that the first one got. A push is named by slot, incarnation and step:
// two processes that held the slot one after the other may both have made a step of one number.
struct LedgerEntry {
  // The highest that has pushed. The fields below describe its pushes, except `applied`.
  Incarnation incarnation = 0;
  Step last_step = 0;
  Verdict last_verdict = VERDICT_UNSPECIFIED;
  int64_t last_lag = 0;
  uint64_t applied = 0;        // pushes of this slot, by any incarnation, that changed this block
  Step acknowledged_step = 0;  // the last step whose verdict went into an OK reply

  // This push is in the block, or was refused there.
  bool HasSeen(Incarnation pusher, Step step) const {
    return pusher == incarnation && step <= last_step;
  }
  // `other` is of a later push.
  bool IsBefore(const LedgerEntry& other) const {
    return incarnation != other.incarnation ? incarnation < other.incarnation
                                            : last_step < other.last_step;
  }

  friend bool operator==(const LedgerEntry& a, const LedgerEntry& b) {
    return a.incarnation == b.incarnation && a.last_step == b.last_step &&
           a.last_verdict == b.last_verdict && a.last_lag == b.last_lag && a.applied == b.applied &&
           a.acknowledged_step == b.acknowledged_step;
  }
};

}  // namespace torchps
