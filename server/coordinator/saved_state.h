#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace torchps {

// A CoordinatorState that no coordinator can have saved; `words` say what is wrong with it.
template <typename... Words>
absl::Status DamagedState(const Words&... words) {
  return absl::DataLossError(
      absl::StrCat("the saved state of the coordinator makes no sense: ", words...));
}

}  // namespace torchps
