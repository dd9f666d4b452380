#pragma once

#include <ostream>

#include "tools/run_plan/run_plan.h"

namespace torchps {

// Replaces this process by the worker program, which reads the job from a file in memory and tries
// one batch of training and one of evaluation. Returns only if that fails: the exit code.
int BecomeDryRun(const RunPlan& plan, std::ostream& error);

}  // namespace torchps
