#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"
#include "tools/report/cluster_client.h"

namespace torchps {

// Implements `psctl status`: shows the state of a running cluster, once or every second.

std::vector<FlagSpec> StatusFlags();

// Returns exit code 0 if any server answered, 3 if no server did, 2 for bad flags.
int StatusCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// Shows the status of `cluster` once. Returns the exit code.
int ShowStatus(ClusterClient& cluster, std::ostream& out);

}  // namespace torchps
