#pragma once

#include <cstdint>

#include "job/field_checker.h"
#include "proto/job.pb.h"

namespace torchps {

// Fills in what a job of so many workers leaves out of how far they may be apart, and of what
// becomes of a late gradient, and checks it; `check` hears what is wrong. REQUIRES: the mode and
// backup_workers are set. Thread-safe.
void NormalizeConsistency(ConsistencySpec* consistency, int32_t workers, FieldChecker& check);

}  // namespace torchps
