#pragma once

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/report.pb.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/run_plan/fault_plan.h"
#include "torchps/tools/run_plan/hosts_file.h"
#include "torchps/tools/run_plan/launch_plan.h"
#include "torchps/tools/run_plan/targets.h"

namespace torchps {

// Returns the lines printed at the start of a run: the job, the parts, the command to watch the
// servers at `addresses`, and an empty line. Pure function. REQUIRES: `job` is normalised, and
// `hosts` contains a worker.
std::vector<std::string> DescribeRun(const JobSpec& job, const LaunchOptions& launch,
                                     const Hosts& hosts, const std::vector<std::string>& addresses);

// Restarts of each server and worker process.
using PartRestarts = std::map<PartName, int>;

// Builds the report from the servers' answers and the run's restarts and targets. Returns nullopt
// if the run was cut short before a job existed. INTERNAL: no job exists although the workers
// finished (`finished`). Errors of the cluster client name server 0 at `address`.
absl::StatusOr<std::optional<Report>> AskForReport(ClusterClient& cluster,
                                                   const std::string& address, bool finished,
                                                   absl::Duration timeout,
                                                   const PartRestarts& restarts,
                                                   const Targets& targets);

// Prints the report, and writes it as JSON to `file` unless `file` is empty. Errors as
// WriteFileAtomically().
absl::Status ShowReport(const Report& report, const std::string& file, std::ostream& out);

// Returns true if each server answered and no block was updated.
bool IsUntrained(const Report& report);

// INTERNAL: the job failed, or has not ended although the workers finished (`finished`).
absl::Status JudgeReport(const Report& report, bool finished);

}  // namespace torchps
