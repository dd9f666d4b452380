#pragma once

#include <ostream>
#include <vector>

#include "tools/base/flag_table.h"
#include "tools/report/cluster_client.h"

namespace torchps {

// `psctl checkpoint`: takes a checkpoint of a running job now, and says what was written.

std::vector<FlagSpec> CheckpointFlags();

// Exit code 0: it is complete; 3: server 0 was not there; otherwise it failed, with the reason.
int CheckpointCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// The same on `cluster`.
int TakeCheckpoint(ClusterClient& cluster, std::ostream& out, std::ostream& error);

}  // namespace torchps
