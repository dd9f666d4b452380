#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/base/flag_table.h"
#include "tools/run_plan/hosts_file.h"
#include "tools/run_plan/launch_plan.h"
#include "tools/run_plan/restart_policy.h"
#include "tools/run_plan/targets.h"

namespace torchps {

// The plan of one run, from the flags and the job (PlanRun()). Copyable.
struct RunPlan {
  LaunchOptions launch;
  Hosts hosts;
  JobSpec job;                      // normalised, for display
  std::string report_file;          // empty: do not write a report
  std::string flags_again;          // quoted arguments that resume the run (FlagsAgain())
  RestartPolicy::Options restarts;  // for each part
  Targets targets;                  // for LaunchOptions::evaluate_every; may be empty
};

// Reads, completes and checks the flags and the job before the run starts processes. Searches for
// ps_server and ps_worker in `program_directory`, psctl's folder. Error messages are one sentence
// that names the flag, the job field or the file.
absl::StatusOr<RunPlan> PlanRun(const FlagValues& flags, const std::string& program_directory);

}  // namespace torchps
