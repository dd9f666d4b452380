#pragma once

#include <string>

#include "proto/job.pb.h"

namespace torchps {

// One sentence for who starts a job whose learning rate is more than its workers are likely to bear
// in ASYNC, where gradients come late; empty for others. A hint, since what a model bears only the
// model knows: docs/guide.md has what was measured. REQUIRES: `job` is normalised.
std::string RateHint(const JobSpec& job);

}  // namespace torchps
