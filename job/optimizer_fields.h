#pragma once

#include <string>

#include "job/field_checker.h"
#include "proto/job.pb.h"

namespace torchps {

// Fills in what an optimizer's fields leave out, and checks them. `path` is where it stands in the
// job: "optimizer", "local.inner". Where its momentum lives is the job's business
// (job/job_spec.cc).
void NormalizeOptimizer(OptimizerSpec* optimizer, const std::string& path, FieldChecker& check);

}  // namespace torchps
