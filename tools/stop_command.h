#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"
#include "tools/report/cluster_client.h"

namespace torchps {

// `psctl stop`: ends the servers of a cluster; their workers then end by themselves.

std::vector<FlagSpec> StopFlags();

// Exit code 0 if every server that was there is gone, 3 if none was there, 1 if one stayed.
int StopCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// The same on `cluster`.
int StopCluster(ClusterClient& cluster, std::ostream& out, std::ostream& error);

}  // namespace torchps
