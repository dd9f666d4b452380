#pragma once

#include <cstdint>

#include "job/field_checker.h"
#include "proto/job.pb.h"

namespace torchps {

// Fills in and checks consistency.mode, backup_workers, apply and patience; `check` hears what is
// wrong. A job that names mode ASYNC and no apply was written when every push was an update, and
// keeps that meaning. A job with local steps or backup workers that names no mode is SYNC.
// Thread-safe.
void NormalizeUpdateRule(JobSpec* job, FieldChecker& check);

// Fills in and checks the other fields: staleness, late gradients, waiting. `workers`: of the job.
// REQUIRES: NormalizeUpdateRule() has run. Thread-safe.
void NormalizeConsistency(ConsistencySpec* consistency, int32_t workers, FieldChecker& check);

}  // namespace torchps
