#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/objective.h"

namespace torchps {

// Whether the objective's metrics can be told apart, and training.best_by, where it is not empty,
// is one of them or "loss". INVALID_ARGUMENT says which is not.
absl::Status CheckMetrics(const Objective& objective, const std::string& best_by);

}  // namespace torchps
