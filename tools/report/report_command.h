#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "tools/base/flag_table.h"
#include "tools/report/cluster_client.h"

namespace torchps {

// Implements `psctl report`: reports on a cluster that runs without psctl, now or after the job
// ends.

std::vector<FlagSpec> ReportFlags();

// Returns exit code 0 if the report was printed and, if requested, written; 3 if server 0 did not
// answer; 1 if the server runs no job or the consistency check failed.
int ReportCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

struct ReportRequest {
  std::string file;  // empty: only print
  bool wait = false;
  // If `wait`: how long server 0 may be unreachable.
  absl::Duration patience = absl::Seconds(60);
  // Length of one waiting request, before a health check of the server.
  absl::Duration parked_for = absl::Seconds(30);
};

// Reports on `cluster`.
int MakeReport(ClusterClient& cluster, const ReportRequest& request, const Clock& clock,
               std::ostream& out, std::ostream& error);

}  // namespace torchps
