#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "tools/run_plan/launch_plan.h"

namespace torchps {

// Fetches the job's data on this machine before the workers start, as --download asks, and makes
// `launch` name their folder. Does nothing without that flag, and with --hosts: the workers fetch
// their own there. Stops when `interrupt_fd` becomes readable: CANCELLED. Others: those of
// DownloadForJob().
absl::Status FetchData(const JobSpec& job, int interrupt_fd, std::ostream& out,
                       LaunchOptions& launch);

}  // namespace torchps
