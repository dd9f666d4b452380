#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/run_plan/launch_plan.h"

namespace torchps {

// Copies model.safetensors and, if it exists, best.safetensors from a server's directory on `host`
// into the folder `dir`, through ssh. Renames each file into place when it is complete.
// UNAVAILABLE: ssh or the remote `cat` failed; the message names the file.
absl::Status FetchModels(const LaunchOptions& launch, const std::string& host,
                         const std::string& dir);

}  // namespace torchps
