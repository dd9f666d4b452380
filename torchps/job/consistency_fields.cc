#include "torchps/job/consistency_fields.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

constexpr int64_t kMaxLag = int64_t{1} << 40;  // keeps all products below 2^63
// Default of grace_part, the time that a round waits after its quorum, as a part of the time to the
// quorum. Step times of equally fast workers differ by less than this part. If a round drops a
// worker, it lasts 1.5 times the time to the quorum.
constexpr double kGracePart = 0.5;
constexpr double kMaxGracePart = 100;

// Default staleness bounds. WHOLE_BATCH counts updates; a gradient that is one update old still
// helps. EACH_PUSH counts steps; even equally fast workers drift apart by about this many.
constexpr int kBoundInUpdates = 1;
constexpr int kBoundInSteps = 4;
constexpr int kMaxBoundInUpdates = 1000;
// The default patience is one usual step of the slot. If it were less than half a step, a push
// would often not wait for the pushes of equally fast workers.
constexpr double kPatience = 1;
constexpr double kLeastPatience = 0.5;
constexpr double kMaxPatience = 10;

// Returns the field that requires apply EACH_PUSH, or an empty string.
std::string NeedsEachPush(const JobSpec& job) {
  if (job.has_local()) return "local";
  if (job.consistency().prefetch()) return "consistency.prefetch";
  if (job.consistency().lag().policy() != LagContract::ACCEPT) return "consistency.lag.policy";
  const SgdSpec& sgd = job.optimizer().sgd();
  return sgd.momentum_at() == SgdSpec::SERVER ? "" : "optimizer.sgd.momentum_at";
}

}  // namespace

void NormalizeUpdateRule(JobSpec* job, FieldChecker& check) {
  ConsistencySpec* consistency = job->mutable_consistency();
  const bool names_mode = consistency->has_mode();
  if (!names_mode) {
    const bool sync = job->has_local() || consistency->backup_workers() > 0;
    consistency->set_mode(sync ? ConsistencySpec::SYNC : ConsistencySpec::ASYNC);
  }
  if (!consistency->has_backup_workers()) consistency->set_backup_workers(0);
  const std::string each_push = NeedsEachPush(*job);
  if (HasRounds(*consistency)) {
    if (consistency->has_apply()) {
      check.Fail("consistency.apply", ConsistencySpec::Apply_Name(consistency->apply()),
                 "no value in mode SYNC");
    }
  } else if (!consistency->has_apply()) {
    consistency->set_apply(names_mode || !each_push.empty() ? ConsistencySpec::EACH_PUSH
                                                            : ConsistencySpec::WHOLE_BATCH);
  }
  if (AppliesWholeBatches(*consistency)) {
    if (!each_push.empty()) {
      check.Fail("consistency.apply", "WHOLE_BATCH",
                 absl::StrCat("EACH_PUSH because of ", each_push));
    }
    check.Range("consistency.backup_workers", consistency->backup_workers(), 0, 0);
    if (!consistency->has_patience()) consistency->set_patience(kPatience);
    check.Range("consistency.patience", consistency->patience(), kLeastPatience, kMaxPatience);
  } else if (consistency->has_patience()) {
    check.Fail("consistency.patience", consistency->patience(),
               "no value except in mode ASYNC with apply WHOLE_BATCH");
  }
}

void NormalizeConsistency(ConsistencySpec* consistency, int32_t workers, FieldChecker& check) {
  const bool sync = HasRounds(*consistency);
  const bool whole_batches = AppliesWholeBatches(*consistency);
  if (!consistency->has_staleness_bound()) {
    consistency->set_staleness_bound(whole_batches ? kBoundInUpdates : kBoundInSteps);
  }
  check.Range("consistency.staleness_bound", consistency->staleness_bound(), -1,
              whole_batches ? kMaxBoundInUpdates : std::numeric_limits<int32_t>::max());
  const bool may_prefetch = AppliesEachPush(*consistency) && consistency->staleness_bound() != 0;
  // If prefetching is possible and not configured, each worker measures its benefit.
  if (!may_prefetch && !consistency->has_prefetch()) consistency->set_prefetch(false);
  const bool prefetch = !consistency->has_prefetch() || consistency->prefetch();
  if (prefetch && !may_prefetch) {
    check.Fail("consistency.prefetch", "true",
               "false except in ASYNC with apply EACH_PUSH and a staleness_bound other than 0: "
               "otherwise each step needs the result of the previous step");
  }
  check.Range("consistency.backup_workers", consistency->backup_workers(), 0,
              std::max(workers - 1, 0));
  const bool may_stop = sync ? consistency->backup_workers() > 0
                             : LargestLag(*consistency) < std::numeric_limits<int64_t>::max();
  if (!consistency->has_stop_stale()) consistency->set_stop_stale(may_stop);
  if (consistency->stop_stale() && !may_stop) {
    check.Fail(
        "consistency.stop_stale", "true",
        "false except in SYNC with backup_workers and in ASYNC with a staleness_bound in updates "
        "or the lag policy REJECT: otherwise gradients are never too late");
  }
  constexpr double kMaxProgressTimeout = 1e6;
  if (!consistency->has_progress_timeout()) consistency->set_progress_timeout(600);
  check.Range("consistency.progress_timeout", consistency->progress_timeout(), 0.0,
              kMaxProgressTimeout);
  check.Range("consistency.grace_part", consistency->grace_part(), 0.0, kMaxGracePart);
  if (sync && consistency->backup_workers() > 0) {
    if (!consistency->has_grace_part()) consistency->set_grace_part(kGracePart);
  } else if (consistency->grace_part() > 0) {
    check.Fail("consistency.grace_part", consistency->grace_part(),
               "0 except in SYNC with backup_workers: otherwise rounds wait for all workers");
  }
  LagContract* lag = consistency->mutable_lag();
  if (!lag->has_free_lag()) {
    // The lag among equally fast slots: one update by each other slot. Prefetched values also lack
    // the slot's own last push.
    lag->set_free_lag(prefetch ? workers : std::max(workers - 1, 1));
  }
  // The lag of a slot at half the speed of the other slots. Bounds below the lag of equally fast
  // slots would refuse gradients of these slots, too.
  if (!lag->has_max_lag()) lag->set_max_lag(int64_t{2} * workers);
  check.Range<int64_t>("consistency.lag.free_lag", lag->free_lag(), 1, kMaxLag);
  check.Range<int64_t>("consistency.lag.max_lag", lag->max_lag(), 1, kMaxLag);
}

}  // namespace torchps
