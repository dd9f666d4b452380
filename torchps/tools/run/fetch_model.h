#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "torchps/proto/job.pb.h"
#include "torchps/tools/run_plan/launch_plan.h"

namespace torchps {

// Downloads the job's data to this machine before the workers start, if --download is set, and sets
// the data folder in `launch`. Does nothing with --hosts, because each worker downloads the data.
// CANCELLED: `interrupt_fd` became readable. Otherwise errors as DownloadForJob().
absl::Status FetchData(const JobSpec& job, int interrupt_fd, std::ostream& out,
                       LaunchOptions& launch);

// Copies model.safetensors and, if it exists, best.safetensors from a server's directory on `host`
// into the folder `dir`, through ssh. Renames each file into place when it is complete.
// UNAVAILABLE: ssh or the remote `cat` failed; the message names the file.
absl::Status FetchModels(const LaunchOptions& launch, const std::string& host,
                         const std::string& dir);

}  // namespace torchps
