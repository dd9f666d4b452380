#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "tools/report/report.h"

namespace torchps {

// Compares --servers with the answers of the job and its servers. Returns a line that names missing
// or misplaced servers, and the correct list if known. Returns "" if it finds no fault. Pure
// function.
//
//   --servers lacks server 1 of the job's 2; list all servers, in order:
//   --servers=alpha:7000,beta:7000
std::string ServerListText(const absl::StatusOr<JobStatus>& job,
                           const std::vector<ServerAnswer>& servers);

// Returns true if the first address in --servers is not server 0 of the job. Then this server's
// answer as coordinator is meaningless.
bool FirstIsAnother(const std::vector<ServerAnswer>& servers);

}  // namespace torchps
