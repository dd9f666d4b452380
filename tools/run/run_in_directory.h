#pragma once

#include <ostream>

#include "common/clock.h"
#include "tools/run/cluster_run.h"

namespace torchps {

// Runs a job in its folder, from its job file to its report. Makes a folder if the plan names none,
// and deletes that one again if the run came to nothing (RemoveUnusedRun()). `on_report`, which may
// be null, gets the report. Returns the exit code.
int RunInDirectory(ClusterRun::Options options, std::ostream& out, std::ostream& error,
                   const Clock& clock, int interrupt_fd, ClusterRun::OnReport on_report = nullptr);

}  // namespace torchps
