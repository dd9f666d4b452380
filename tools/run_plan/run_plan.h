#pragma once

#include <string>

#include "proto/job.pb.h"
#include "tools/run_plan/hosts_file.h"
#include "tools/run_plan/launch_plan.h"
#include "tools/run_plan/restart_policy.h"
#include "tools/run_plan/targets.h"

namespace torchps {

// The plan of one run, read from its flags and its job (PlanRun()). Copyable.
struct RunPlan {
  LaunchOptions launch;
  Hosts hosts;
  JobSpec job;                      // normalised; the run shows it
  std::string report_file;          // empty: the run writes none
  std::string flags_again;          // the words to type to resume the run, quoted (FlagsAgain())
  RestartPolicy::Options restarts;  // of each part
  Targets targets;                  // for LaunchOptions::evaluate_every; may be empty
};

}  // namespace torchps
