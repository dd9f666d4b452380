#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"
#include "tools/report/cluster_client.h"

namespace torchps {

// `psctl status`: what a running cluster is doing, once or every second.

std::vector<FlagSpec> StatusFlags();

// Exit code 0 if any server answered, 3 if none did, 2 for bad flags.
int StatusCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// One look at `cluster` without flags around it; the exit code.
int ShowStatus(ClusterClient& cluster, std::ostream& out);

}  // namespace torchps
