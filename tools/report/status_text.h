#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/report/cluster_client.h"
#include "tools/report/report.h"

namespace torchps {

// One look at a running cluster.
struct ClusterView {
  absl::StatusOr<JobStatus> job;
  std::vector<ServerAnswer> servers;
  absl::Duration seen_at;  // on a steady clock
};

// Asks every server, server 0 for the job as well.
ClusterView LookAtCluster(ClusterClient& cluster, absl::Duration timeout, absl::Duration now);

// The cluster as a headline and two tables. With a `previous` view (nullptr: none) rates are those
// since then, otherwise since the start of the job. A server that is away is a row that says so.
std::string StatusText(const ClusterView& view, const ClusterView* previous);

// No server answered.
bool NoneReachable(const ClusterView& view);

}  // namespace torchps
