#pragma once

#include <cstdint>

#include "common/types.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// Records one slot's pushes to a block, so that the block applies each push at most once and
// answers a repeated push like the first one. A push is identified by slot, incarnation and step,
// because two processes that held the slot in succession may both have pushed the same step.
struct LedgerEntry {
  // The highest incarnation that pushed to this block. The fields below, except `applied`, describe
  // the pushes of that incarnation.
  Incarnation incarnation = 0;
  Step last_step = 0;
  Verdict last_verdict = VERDICT_UNSPECIFIED;
  int64_t last_lag = 0;
  uint64_t applied = 0;        // pushes of this slot, by any incarnation, that changed this block
  Step acknowledged_step = 0;  // the last step whose verdict went into an OK reply

  // Returns true if the block has already applied or rejected this push.
  bool HasSeen(Incarnation pusher, Step step) const {
    return pusher == incarnation && step <= last_step;
  }
  // Returns true if `other` describes a later push.
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
