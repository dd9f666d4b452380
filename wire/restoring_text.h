#pragma once

#include <string>

#include "absl/strings/str_format.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// For people: "reads checkpoint 7, 40 % done"; without the part where it is not known.
inline std::string RestoringText(const Restoring& restoring) {
  if (restoring.part() <= 0) return restoring.what();
  return absl::StrFormat("%s, %.0f %% done", restoring.what(), 100 * restoring.part());
}

}  // namespace torchps
