#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// Identifiers and counters shared by the whole system (docs/architecture.md, "Terms").

// Identifies a logical data-parallel worker, numbered from 0. Each worker process holds a slot.
using SlotId = int32_t;

// Counts the takeovers of a slot: it increases each time that a process acquires the slot. 0 means
// that the slot was never held.
using Incarnation = uint64_t;

// Minimum distance between the incarnations before and after a whole-job resume. A restarted
// coordinator also skips incarnations, but far fewer. So the distance between two incarnations
// shows if a resume happened between them. Checkpoints store the next incarnation for this
// comparison.
inline constexpr Incarnation kResumeGap = Incarnation{1} << 40;
inline constexpr bool IsOfLaterGeneration(Incarnation incarnation, Incarnation earlier) {
  return incarnation >= earlier + kResumeGap / 2;
}

// Counts the pushes of a slot, from 1. The triple (slot, incarnation, step) identifies a push.
using Step = int64_t;

// The number of updates of a block.
using Version = int64_t;

// Value of PullRequest.have_version for a block that the worker does not want.
inline constexpr Version kUnwantedBlock = -2;

// Index of a block in the BlockMap.
using BlockId = uint32_t;

// Workers and servers reject each other if their protocol versions differ. Increase this with each
// change in torchps/proto/ that an older program would misread.
inline constexpr uint32_t kProtocolVersion = 8;

// Upper bound on slot numbers. Slots are small, so per-block ledgers can be arrays. The limit is
// beyond any real cluster and prevents a forged slot number from allocating large arrays.
inline constexpr SlotId kMaxSlots = 4096;

// Job progress as carried in pushes: the fraction of the job's samples in units of 2^-32. All
// functions are thread-safe.

inline constexpr double kProgressUnit = 1.0 / (uint64_t{1} << 32);

// Encodes a fraction, clamped to [0, 1 - 2^-32].
inline uint32_t GetProgress(double part) {
  return static_cast<uint32_t>(
      std::clamp(std::floor(part / kProgressUnit), 0.0, static_cast<double>(UINT32_MAX)));
}

inline double GetPart(uint32_t progress) { return progress * kProgressUnit; }

// Distinguishes data sets of the same size: a hash of a few training samples and a hash of a few
// test samples (computed in torchps/data/dataset.h). Unknown values are 0. Plain value type.
struct DataFingerprint {
  uint32_t train = 0;
  uint32_t test = 0;

  // Returns the encoded form used in JoinRequest and CoordinatorState.
  uint64_t number() const { return uint64_t{train} << 32 | test; }
  static DataFingerprint Of(uint64_t number) {
    return {static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(number)};
  }

  // Returns this fingerprint with unknown values replaced from `other`.
  DataFingerprint CompletedBy(const DataFingerprint& other) const {
    return {train == 0 ? other.train : train, test == 0 ? other.test : test};
  }
};

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
