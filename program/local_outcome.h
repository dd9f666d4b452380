#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "client/calls/server_channel.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// What the coordinator's server says of its job, asked once; nullopt: it does not answer.
absl::optional<JobStatus> AskForOutcome(const ServerEndpoint& coordinator);

// The last line of a run by --local, where no report is made: "digits finished after 2 epochs in
// 3.2 s: test loss 0.4018, accuracy 0.872".
std::string OutcomeText(const JobStatus& job);

// RESOURCE_EXHAUSTED: the job has ended, and its model could not be kept.
absl::Status ModelKept(const JobStatus& job);

}  // namespace torchps
