#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/proto/job.pb.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/run_plan/hosts_file.h"
#include "torchps/tools/run_plan/launch_plan.h"
#include "torchps/tools/run_plan/targets.h"

namespace torchps {

// Chooses the machine of each part of `psctl run` from the flags. Error messages are one sentence
// that names the flag. Stateless.

// Returns the parts' locations: this machine with numbers of servers and workers, or a hosts file.
// --gpus sets the GPUs of each worker.
absl::StatusOr<Hosts> PlanHosts(const FlagValues& flags, const JobSpec& job);

// INVALID_ARGUMENT: a server would listen on the network without encryption, and --insecure is not
// set; or a flag requires other machines.
absl::Status CheckHosts(const FlagValues& flags, const Hosts& hosts);

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
