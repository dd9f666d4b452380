#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/proto/report.pb.h"

// Builds the message Report (torchps/proto/report.proto). torchps/tools/report/report_command.h and
// torchps/tools/report/report_text.h write it. Pure functions.

namespace torchps {

// The answer of one server to the report's request.
struct ServerAnswer {
  std::string address;
  absl::StatusOr<ServerStatus> status;
};

// Builds the report except `restarts`. For a server that did not answer, adds the error and skips
// the comparisons that need the server's numbers.
Report BuildReport(const JobStatus& job, const std::vector<ServerAnswer>& servers);

// Returns the updates of a job with apply WHOLE_BATCH: the count, the gradient ages and the longest
// wait, over the servers that answered. Divides counts of blocks by the number of blocks and
// rounds, but to at least 1 if a count is not zero. nullopt: the job uses another apply mode, or
// the model does not exist yet.
std::optional<Report::Updates> GetUpdates(const ConsistencySpec& consistency,
                                          const std::vector<ServerAnswer>& servers);

// Returns the slot's figures. If an update combines several pushes, moves the time that servers
// held the slot's pushes from `push_seconds` to `wait_seconds`.
StepFigures GetFigures(const SlotAccounting& slot, const ConsistencySpec& consistency,
                       const std::vector<ServerAnswer>& servers);

// Returns the slot's total time, in seconds.
double TotalSeconds(const StepFigures& figures);

}  // namespace torchps
