#pragma once

#include <map>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/report.pb.h"
#include "tools/report/cluster_client.h"
#include "tools/run_plan/fault_plan.h"
#include "tools/run_plan/targets.h"

namespace torchps {

// How often each part of a run was started again; no evaluator. Of a worker of several processes
// each counts.
using PartRestarts = std::map<PartName, int>;

// The report of a run, as its servers can give it once the workers are done: what they say, and
// what only the run knows. nullopt: there is no job to report of, and the run was cut short.
// INTERNAL: there is none though the workers ended well (`finished`); an error of the cluster's
// names server 0 at `address`.
absl::StatusOr<absl::optional<Report>> AskForReport(ClusterClient& cluster,
                                                    const std::string& address, bool finished,
                                                    absl::Duration timeout,
                                                    const PartRestarts& restarts,
                                                    const Targets& targets);

// Prints it, and writes it to `file` as JSON, or where that is empty nowhere. Errors of
// WriteFileAtomically().
absl::Status ShowReport(const Report& report, const std::string& file, std::ostream& out);

// Whether every server answered and no block has had an update.
bool IsUntrained(const Report& report);

// OK, or INTERNAL: the job has failed, or is not over though the workers ended well (`finished`).
absl::Status JudgeReport(const Report& report, bool finished);

}  // namespace torchps
