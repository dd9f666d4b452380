#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tools/base/flag_table.h"
#include "tools/run_plan/run_plan.h"

namespace torchps {

// Reads, completes and checks the flags and the job before the run starts processes. Searches for
// ps_server and ps_worker in `program_directory`, psctl's folder. Error messages are one sentence
// that names the flag, the job field or the file.
absl::StatusOr<RunPlan> PlanRun(const FlagValues& flags, const std::string& program_directory);

}  // namespace torchps
