#pragma once

#include <string>

#include "proto/report.pb.h"

namespace torchps {

// Returns the report as text: one sentence with the result, tables and two small histograms. About
// 80 columns wide, ends with a newline.
std::string ReportText(const Report& report);

// Returns, for example, "target accuracy 0.98: after 12.3 s, 25,600 samples and 800 pushes", or
// "...: not met".
std::string TargetText(const Report::Target& target);

}  // namespace torchps
