#pragma once

#include <string>

#include "proto/report.pb.h"

namespace torchps {

// The report for a reader: one sentence with the result, then tables and two small histograms.
// About 80 columns wide, ends in a newline.
std::string ReportText(const Report& report);

}  // namespace torchps
