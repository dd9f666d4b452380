#pragma once

#include <string>

#include "proto/job.pb.h"

namespace torchps {

// Returns a sentence for users whose job combines stale gradients (ASYNC with apply EACH_PUSH) with
// a learning rate that is probably too high, otherwise an empty string. This is only a hint,
// because the limit depends on the model; docs/guide.md lists measurements. REQUIRES: `job` is
// normalised.
std::string RateHint(const JobSpec& job);

}  // namespace torchps
