#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"
#include "tools/report/report.h"

namespace torchps {

// What is wrong with a --servers that gave these answers, measured by what the job and its servers
// say themselves: which of them it lacks, or which it names in another's place, and how it should
// read where that is known. A line; empty: nothing is known to be wrong. A pure function.
//
//   --servers lacks server 1 of the job's 2; name all of them, in their order:
//   --servers=alpha:7000,beta:7000
std::string ServerListText(const absl::StatusOr<JobStatus>& job,
                           const std::vector<ServerAnswer>& servers);

// Whether the one that --servers names first says that it is another of the job's servers. What it
// tells of a job as its coordinator is then nothing.
bool FirstIsAnother(const std::vector<ServerAnswer>& servers);

}  // namespace torchps
