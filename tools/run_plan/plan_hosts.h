#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "tools/base/flag_table.h"
#include "tools/run_plan/hosts_file.h"

// Which parts of `psctl run` run where, as its flags say it. Errors are one sentence that names the
// flag. Free functions without state.

namespace torchps {

// On this machine by numbers, elsewhere by a hosts file; and each worker's GPUs by --gpus.
absl::StatusOr<Hosts> PlanHosts(const FlagValues& flags, const JobSpec& job);

// INVALID_ARGUMENT: a server would listen on the network without encryption and nobody has said
// that this is wanted, or a flag is of use elsewhere only.
absl::Status CheckHosts(const FlagValues& flags, const Hosts& hosts);

}  // namespace torchps
