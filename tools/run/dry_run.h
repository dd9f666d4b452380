#pragma once

#include <ostream>

#include "tools/run_plan/run_plan.h"

namespace torchps {

// Replaces this process with the worker program, which reads the job from a memory file and tries
// one training batch and one evaluation batch. Returns only on failure, with the exit code.
int BecomeDryRun(const RunPlan& plan, std::ostream& error);

}  // namespace torchps
