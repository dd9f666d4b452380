#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "tools/run_plan/hosts_file.h"
#include "tools/run_plan/launch_plan.h"

namespace torchps {

// Returns the lines printed at the start of a run: the job, the parts, the command to watch the
// servers at `addresses`, and an empty line. Pure function. REQUIRES: `job` is normalised, and
// `hosts` contains a worker.
std::vector<std::string> DescribeRun(const JobSpec& job, const LaunchOptions& launch,
                                     const Hosts& hosts, const std::vector<std::string>& addresses);

}  // namespace torchps
