#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/base/flag_table.h"
#include "tools/run_plan/hosts_file.h"

// Chooses the machine of each part of `psctl run` from the flags. Error messages are one sentence
// that names the flag. Stateless.

namespace torchps {

// Returns the parts' locations: this machine with numbers of servers and workers, or a hosts file.
// --gpus sets the GPUs of each worker.
absl::StatusOr<Hosts> PlanHosts(const FlagValues& flags, const JobSpec& job);

// INVALID_ARGUMENT: a server would listen on the network without encryption, and --insecure is not
// set; or a flag requires other machines.
absl::Status CheckHosts(const FlagValues& flags, const Hosts& hosts);

}  // namespace torchps
