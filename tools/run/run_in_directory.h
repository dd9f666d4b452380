#pragma once

#include <ostream>

#include "common/clock.h"
#include "tools/run/cluster_run.h"

namespace torchps {

// Runs a job in a run folder, which receives the job file, the logs and the report. Creates a
// folder if the plan does not name one, and deletes that folder if the run achieved no result
// (RemoveUnusedRun()). Calls `on_report`, if not null, with the report. Returns the exit code.
int RunInDirectory(ClusterRun::Options options, std::ostream& out, std::ostream& error,
                   const Clock& clock, int interrupt_fd, ClusterRun::OnReport on_report = nullptr);

}  // namespace torchps
