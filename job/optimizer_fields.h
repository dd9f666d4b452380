#pragma once

#include <string>

#include "job/field_checker.h"
#include "proto/job.pb.h"

namespace torchps {

// Sets defaults for the fields of an optimizer and validates them. `path` is the optimizer's path
// in the job: "optimizer" or "local.inner". Does not handle sgd.momentum_at, which depends on the
// whole job (job/job_spec.cc).
void NormalizeOptimizer(OptimizerSpec* optimizer, const std::string& path, FieldChecker& check);

}  // namespace torchps
