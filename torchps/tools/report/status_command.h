#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/report/report.h"

namespace torchps {

// The answers of a running cluster at one time.
struct ClusterView {
  absl::StatusOr<JobStatus> job;
  std::vector<ServerAnswer> servers;
  absl::Duration seen_at;  // steady clock
};

// Asks each server for the status, and server 0 also for the job.
ClusterView ReadCluster(ClusterClient& cluster, absl::Duration timeout, absl::Duration now);

// Returns the cluster's state: a headline and two tables. With a `previous` view, rates are
// averages since that view, otherwise since the start of the job. A server that did not answer gets
// a row with dashes.
std::string StatusText(const ClusterView& view, const ClusterView* previous);

// Returns true if no server answered.
bool NoneReachable(const ClusterView& view);

// Implements `psctl status`: shows the state of a running cluster, once or every second.

std::vector<FlagSpec> StatusFlags();

// Returns exit code 0 if any server answered, 3 if no server did, 2 for bad flags.
int StatusCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// Shows the status of `cluster` once. Returns the exit code.
int ShowStatus(ClusterClient& cluster, std::ostream& out);

}  // namespace torchps
