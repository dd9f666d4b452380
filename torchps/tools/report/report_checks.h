#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/report.pb.h"
#include "torchps/tools/report/report.h"

// Checks the numbers of a report for consistency. Pure functions.

namespace torchps {

// Fills in `reconciles` (docs/operate.md) from the report's other fields and the servers' answers.
void CheckReport(const JobStatus& job, const std::vector<ServerAnswer>& servers, Report& report);

// Returns the comparisons in the report by name, in field order.
std::vector<std::pair<std::string, Report::Check>> GetChecks(const Report& report);

}  // namespace torchps
