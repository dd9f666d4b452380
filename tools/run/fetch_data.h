#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "tools/run_plan/launch_plan.h"

namespace torchps {

// Downloads the job's data to this machine before the workers start, if --download is set, and sets
// the data folder in `launch`. Does nothing with --hosts, because each worker downloads the data.
// CANCELLED: `interrupt_fd` became readable. Otherwise errors as DownloadForJob().
absl::Status FetchData(const JobSpec& job, int interrupt_fd, std::ostream& out,
                       LaunchOptions& launch);

}  // namespace torchps
