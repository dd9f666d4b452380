#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_service.pb.h"
#include "proto/report.pb.h"

// Makes the message Report (proto/report.proto), once; tools/report/report_json.h and
// tools/report/report_text.h write it down. Pure functions.

namespace torchps {

// What one server answered when the report was made.
struct ServerAnswer {
  std::string address;
  absl::StatusOr<ServerStatus> status;
};

// Puts the report together, but for `restarts`. A server that did not answer is named with its
// error, and the comparisons that need its numbers are not judged.
Report BuildReport(const JobStatus& job, const std::vector<ServerAnswer>& servers);

// The comparisons in the report, by name and in the message's order.
std::vector<std::pair<std::string, Report::Check>> ChecksOf(const Report& report);

// All of a slot's time, in seconds.
double TotalSeconds(const StepFigures& figures);

}  // namespace torchps
