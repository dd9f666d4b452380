#include "job/consistency_fields.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

constexpr int64_t kMaxLag = int64_t{1} << 40;  // keeps all products below 2^63
// Two could be chance; three lags in a row mean that the slot is simply slower than max_lag.
constexpr int kAdmitAfter = 3;
constexpr double kMostGraceMs = 3'600'000;
// Equal workers' steps differ by less; a round without its last one takes half as long again.
constexpr double kGracePart = 0.5;
constexpr double kMostGracePart = 100;
// A tenth less for each version.
constexpr double kAgeDecay = 0.1;
// What is more leaves nothing of a late gradient.
constexpr double kMostAgeDecay = 100;

}  // namespace

void NormalizeConsistency(ConsistencySpec* consistency, int32_t workers, FieldChecker& check) {
  if (!consistency->has_staleness_bound()) consistency->set_staleness_bound(4);
  check.Range("consistency.staleness_bound", consistency->staleness_bound(), -1,
              std::numeric_limits<int32_t>::max());
  const bool may_prefetch =
      consistency->mode() == ConsistencySpec::ASYNC && consistency->staleness_bound() != 0;
  // Where it is possible and not said, each worker measures whether it is worth it.
  if (!may_prefetch && !consistency->has_prefetch()) consistency->set_prefetch(false);
  const bool prefetch = !consistency->has_prefetch() || consistency->prefetch();
  if (prefetch && !may_prefetch) {
    check.Fail("consistency.prefetch", "true",
               "false in SYNC and with a staleness_bound of 0, where a step needs the values after "
               "the one before");
  }
  check.Range("consistency.backup_workers", consistency->backup_workers(), 0,
              std::max(workers - 1, 0));
  const bool sync = consistency->mode() == ConsistencySpec::SYNC;
  const bool may_stop =
      sync ? consistency->backup_workers() > 0 : consistency->lag().policy() == LagContract::REJECT;
  if (!consistency->has_stop_stale()) consistency->set_stop_stale(may_stop);
  if (consistency->stop_stale() && !may_stop) {
    check.Fail("consistency.stop_stale", "true",
               "false but in SYNC with backup_workers and in ASYNC with the lag policy REJECT: "
               "elsewhere no gradient comes too late");
  }
  check.Range("consistency.grace_ms", consistency->grace_ms(), 0.0, kMostGraceMs);
  constexpr double kMostProgressTimeout = 1e6;
  if (!consistency->has_progress_timeout()) consistency->set_progress_timeout(600);
  check.Range("consistency.progress_timeout", consistency->progress_timeout(), 0.0,
              kMostProgressTimeout);
  check.Range("consistency.grace_part", consistency->grace_part(), 0.0, kMostGracePart);
  if (sync && consistency->backup_workers() > 0) {
    if (!consistency->has_grace_part()) {
      consistency->set_grace_part(consistency->grace_ms() > 0 ? 0 : kGracePart);
    }
  } else if (consistency->grace_ms() > 0 || consistency->grace_part() > 0) {
    const bool in_ms = consistency->grace_ms() > 0;
    check.Fail(in_ms ? "consistency.grace_ms" : "consistency.grace_part",
               in_ms ? consistency->grace_ms() : consistency->grace_part(),
               "0 but in SYNC with backup_workers: elsewhere no round ends without a worker");
  }
  LagContract* lag = consistency->mutable_lag();
  if (!lag->has_free_lag()) {
    // Values that were pulled before the slot's own last push lack that too.
    lag->set_free_lag(prefetch ? workers : std::max(workers - 1, 1));
  }
  // What a slot of half the others' speed meets; below the largest lag that equal ones have, they
  // would lose work, too.
  if (!lag->has_max_lag()) lag->set_max_lag(int64_t{2} * workers);
  if (!lag->has_admit_after()) lag->set_admit_after(kAdmitAfter);
  check.Range<int64_t>("consistency.lag.free_lag", lag->free_lag(), 1, kMaxLag);
  check.Range<int64_t>("consistency.lag.max_lag", lag->max_lag(), 1, kMaxLag);
  check.Range("consistency.lag.admit_after", lag->admit_after(), 0,
              std::numeric_limits<int32_t>::max());
  if (lag->policy() == LagContract::DECAY && !lag->has_age_decay()) lag->set_age_decay(kAgeDecay);
  if (lag->has_age_decay() && !(lag->age_decay() > 0 && lag->age_decay() <= kMostAgeDecay)) {
    check.Fail("consistency.lag.age_decay", lag->age_decay(),
               absl::StrCat("above 0 and at most ", kMostAgeDecay));
  }
}

}  // namespace torchps
