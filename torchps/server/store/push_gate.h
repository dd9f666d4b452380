#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// Tracks the job's progress by the pushes that a server received. A slow or paused slot may push a
// gradient for samples that were assigned long ago. Such a push must not turn the learning rate's
// schedule back. Because slots hold sample leases in parallel, a push may still be a little behind
// the latest push: by at most `slack`.
// Thread-safe.
class LatestProgress {
 public:
  // `slack` is in the units of a push's progress.
  explicit LatestProgress(uint32_t slack) : slack_(slack) {}

  // Records a push's progress. Returns the progress to use: the push's, or the latest less the
  // slack if that is higher.
  uint32_t Meet(uint32_t progress) {
    uint32_t latest = latest_.load(std::memory_order_relaxed);
    while (progress > latest &&
           !latest_.compare_exchange_weak(latest, progress, std::memory_order_relaxed)) {
    }
    latest = std::max(latest, progress);
    return std::max(progress, latest - std::min(latest, slack_));
  }

 private:
  const uint32_t slack_;
  std::atomic<uint32_t> latest_{0};
};

// The gate's decision on one push to one block.
struct PushDecision {
  Verdict verdict = VERDICT_UNSPECIFIED;
  bool duplicate = false;  // repeated push: change nothing
  bool apply = false;
  double rate_factor = 1.0;      // multiplies the learning rate
  double gradient_factor = 1.0;  // multiplies the gradient before the optimizer uses it
  int64_t lag = 0;
};

// Decides on each push to each block, by incarnation, step and staleness, from the ledger and the
// LagContract (torchps/proto/job.proto). Thread-safe after AllowRolledBack().
class PushGate {
 public:
  // REQUIRES: free_lag >= 1 with WEIGH, max_lag >= 0 with REJECT.
  explicit PushGate(const LagContract& contract) : contract_(contract) {}

  // Accepts gradients of versions that a restore rolled back. Their lag is unknown, and is taken as
  // zero. Must be called before the first push.
  void AllowRolledBack() { allows_rolled_back_ = true; }

  // Returns true if the entry already contains the push of `step` by `incarnation`. Returns false
  // for a new push, even if an earlier incarnation reached a higher step. ABORTED: a later
  // incarnation pushed. INVALID_ARGUMENT: step is below 1.
  static absl::StatusOr<bool> IsRepeat(const LedgerEntry& entry, Incarnation incarnation,
                                       Step step);

  // Returns the decision on a push that was computed on version `base`, for a block at version
  // `current`. The lag is current - base. ACCEPT applies any lag. WEIGH multiplies the gradient by
  // 1 / max(1, lag / free_lag) (Zhang et al. 2015, Jiang et al. 2017) before it enters the
  // optimizer's moments. REJECT does not apply a push with lag > max_lag. Errors as IsRepeat.
  // INVALID_ARGUMENT: the block never had version `base`, and AllowRolledBack() was not called.
  absl::StatusOr<PushDecision> Judge(const LedgerEntry& entry, Incarnation incarnation, Step step,
                                     Version base, Version current) const;

  // Writes a decision that is not a duplicate to the ledger. The caller applies the push before it
  // releases the block's lock.
  static void Record(const PushDecision& decision, Incarnation incarnation, Step step,
                     LedgerEntry* entry);

 private:
  const LagContract contract_;
  bool allows_rolled_back_ = false;
};

}  // namespace torchps
