#pragma once

#include <ostream>

#include "torchps/common/clock.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/run/cluster_run.h"
#include "torchps/tools/run_plan/plan_run.h"

namespace torchps {

// Runs a job in a run folder, which receives the job file, the logs and the report. Creates a
// folder if the plan does not name one, and deletes that folder if the run achieved no result
// (RemoveUnusedRun()). Calls `on_report`, if not null, with the report. Returns the exit code.
int RunInDirectory(ClusterRun::Options options, std::ostream& out, std::ostream& error,
                   const Clock& clock, int interrupt_fd, ClusterRun::OnReport on_report = nullptr);

// Replaces this process with the worker program, which reads the job from a memory file and tries
// one training batch and one evaluation batch. Returns only on failure, with the exit code.
int BecomeDryRun(const RunPlan& plan, std::ostream& error);

// Implements `psctl run`: plans and runs a job. Returns the exit code. Writes errors and hints to
// `error`, other output to `out`.
int RunCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
