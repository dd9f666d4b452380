#pragma once

#include <ostream>

#include "tools/base/flag_table.h"
#include "tools/run_plan/plan_run.h"

namespace torchps {

// Replaces this process with the worker program, which reads the job from a memory file and tries
// one training batch and one evaluation batch. Returns only on failure, with the exit code.
int BecomeDryRun(const RunPlan& plan, std::ostream& error);

// Implements `psctl run`: plans and runs a job. Returns the exit code. Writes errors and hints to
// `error`, other output to `out`.
int RunCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
