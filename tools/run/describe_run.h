#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "tools/run_plan/hosts_file.h"
#include "tools/run_plan/launch_plan.h"

namespace torchps {

// What runs, in the lines that a run begins with: the job, its parts, how to watch them at these
// addresses, and an empty one. A pure function. REQUIRES: the job is normalised, and there is a
// worker.
std::vector<std::string> DescribeRun(const JobSpec& job, const LaunchOptions& launch,
                                     const Hosts& hosts, const std::vector<std::string>& addresses);

}  // namespace torchps
