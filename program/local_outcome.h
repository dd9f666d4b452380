#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "client/calls/server_channel.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// Asks the coordinator once for the job status. Returns nullopt if the call fails.
absl::optional<JobStatus> AskForOutcome(const ServerEndpoint& coordinator);

// Returns the last line of a --local run, which does not write a report: "digits finished after 2
// epochs in 3.2 s: test loss 0.4018, accuracy 0.872".
std::string OutcomeText(const JobStatus& job);

// Returns RESOURCE_EXHAUSTED if the job ended but the model could not be saved.
absl::Status ModelKept(const JobStatus& job);

}  // namespace torchps
