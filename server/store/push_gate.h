#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/ledger_entry.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// The gate's decision on one push to one block.
struct PushDecision {
  Verdict verdict = VERDICT_UNSPECIFIED;
  bool duplicate = false;  // had its verdict before: change nothing
  bool apply = false;
  double rate_factor = 1.0;      // on the learning rate
  double gradient_factor = 1.0;  // on the gradient, before the optimizer's moments take it
  int64_t lag = 0;
};

// By incarnation, step and staleness: judges each push on each block by the ledger and the lag
// contract (docs/architecture.md, "Terms"). Pure functions of their arguments; immutable, so
// thread-safe.
class PushGate {
 public:
  // With WEIGH free_lag is at least 1, with REJECT max_lag at least 0.
  explicit PushGate(const LagContract& contract) : contract_(contract) {}

  // The push of `step` by `incarnation` on this entry: true, it is a repeat of one that is in the
  // entry; false, it is new, also where it has a lower step than an earlier incarnation's last one.
  // ABORTED: a later incarnation has pushed. INVALID_ARGUMENT: step below 1.
  static absl::StatusOr<bool> IsRepeat(const LedgerEntry& entry, Incarnation incarnation,
                                       Step step);

  // The decision on that push, computed on version `base`, of a block now at version `current`.
  // Lag is current - base. ACCEPT applies any lag. WEIGH multiplies the gradient by
  // 1 / max(1, lag / free_lag) (Zhang et al. 2015, Jiang et al. 2017) before it enters the
  // optimizer's moments. REJECT does not apply a push with lag > max_lag.
  // Errors as IsRepeat; INVALID_ARGUMENT: a base version that the block never had.
  absl::StatusOr<PushDecision> Judge(const LedgerEntry& entry, Incarnation incarnation, Step step,
                                     Version base, Version current) const;

  // Writes a decision that is no duplicate into the ledger; the caller has applied it by then, or
  // does so before it lets go of the block's lock.
  static void Record(const PushDecision& decision, Incarnation incarnation, Step step,
                     LedgerEntry* entry);

 private:
  const LagContract contract_;
};

}  // namespace torchps
