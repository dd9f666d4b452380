#pragma once

#include <string>

#include "tools/base/status_line.h"

namespace torchps {

// Formats the workers' status lines for people.

// "epoch 2/5   step    340   loss 0.1234    3,210 samples/s   waiting  4 %"
std::string ProgressText(const StatusLine& line, int epochs);

// "epoch 2/5   test accuracy 93.50 %   test loss 0.2100   on 1,000 samples"
std::string EvaluationText(const StatusLine& line, int epochs);

}  // namespace torchps
