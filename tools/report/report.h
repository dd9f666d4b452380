#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
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

// The updates of a job that makes them of whole batches (apply WHOLE_BATCH): their number, the ages
// of their gradients, and the longest wait for one, over all servers that answered. Counts of
// blocks are divided by the number of blocks and rounded, but to no less than 1 where anything was
// counted. nullopt: the job makes its updates in another way, or no block is there yet.
absl::optional<Report::Updates> GetUpdates(const ConsistencySpec& consistency,
                                           const std::vector<ServerAnswer>& servers);

// The slot's figures. Where an update is made of several pushes, the time for which the servers
// held the slot's pushes until their update is in `wait_seconds` and no longer in `push_seconds`.
StepFigures GetFigures(const SlotAccounting& slot, const ConsistencySpec& consistency,
                       const std::vector<ServerAnswer>& servers);

// All of a slot's time, in seconds.
double TotalSeconds(const StepFigures& figures);

}  // namespace torchps
