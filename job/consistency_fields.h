#pragma once

#include <cstdint>

#include "job/field_checker.h"
#include "proto/job.pb.h"

namespace torchps {

// Sets defaults for consistency.mode, backup_workers, apply and patience, validates them, and
// reports errors to `check`. If a job sets mode ASYNC without apply, apply becomes EACH_PUSH, the
// only rule before `apply` existed. If a job with local steps or backup workers sets no mode, the
// mode becomes SYNC. Thread-safe.
void NormalizeUpdateRule(JobSpec* job, FieldChecker& check);

// Sets defaults for the remaining fields (staleness, lag contract, timeouts) and validates them.
// `workers` is the job's number of workers. REQUIRES: NormalizeUpdateRule() was called.
// Thread-safe.
void NormalizeConsistency(ConsistencySpec* consistency, int32_t workers, FieldChecker& check);

}  // namespace torchps
