#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace torchps {

// Returns DATA_LOSS for a CoordinatorState that a coordinator cannot have saved. `words` describe
// the problem.
template <typename... Words>
absl::Status DamagedState(const Words&... words) {
  return absl::DataLossError(
      absl::StrCat("the saved state of the coordinator is invalid: ", words...));
}

}  // namespace torchps
