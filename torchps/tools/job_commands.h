#pragma once

#include <ostream>
#include <vector>

#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/report/cluster_client.h"

namespace torchps {

// Implements `psctl checkpoint`: takes a checkpoint of a running job and prints a summary.

std::vector<FlagSpec> CheckpointFlags();

// Returns exit code 0 if the checkpoint is complete, 3 if server 0 is unreachable, and otherwise
// the code of the failure.
int CheckpointCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// Takes the checkpoint on `cluster`.
int TakeCheckpoint(ClusterClient& cluster, std::ostream& out, std::ostream& error);

// Implements `psctl stop`: stops a cluster's servers. The workers then exit.

std::vector<FlagSpec> StopFlags();

// Returns exit code 0 if the reachable servers stopped, 3 if all servers were unreachable, 1 if a
// server did not stop.
int StopCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// Stops the servers of `cluster`.
int StopCluster(ClusterClient& cluster, std::ostream& out, std::ostream& error);

}  // namespace torchps
