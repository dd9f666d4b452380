#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/base/flag_table.h"
#include "tools/run_plan/run_plan.h"

namespace torchps {

// Reads, completes and checks everything before the run starts a process. `program_directory` is
// psctl's own folder: PlanRun() looks there for ps_server and ps_worker. An error is one sentence
// that names the flag, the job's field or the file.
absl::StatusOr<RunPlan> PlanRun(const FlagValues& flags, const std::string& program_directory);

}  // namespace torchps
