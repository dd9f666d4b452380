#pragma once

#include <string>

#include "proto/job.pb.h"
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

}  // namespace torchps
