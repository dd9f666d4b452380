#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/run_plan/launch_plan.h"

namespace torchps {

// Copies model.safetensors and, if there is one, best.safetensors from the directory of a server on
// `host` into the folder `dir`, through ssh. A file is under its name only when it is whole.
// UNAVAILABLE, with the name of the model file: ssh or the other machine's `cat` has failed.
absl::Status FetchModels(const LaunchOptions& launch, const std::string& host,
                         const std::string& dir);

}  // namespace torchps
