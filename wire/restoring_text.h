#pragma once

#include <string>

#include "absl/strings/str_format.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// Returns a progress text for users: "reads checkpoint 7, 40 % done". Omits the percentage if it is
// unknown.
inline std::string RestoringText(const Restoring& restoring) {
  if (restoring.part() <= 0) return restoring.what();
  return absl::StrFormat("%s, %.0f %% done", restoring.what(), 100 * restoring.part());
}

}  // namespace torchps
