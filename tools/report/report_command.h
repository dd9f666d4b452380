#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "tools/base/flag_table.h"
#include "tools/report/cluster_client.h"

namespace torchps {

// `psctl report`: the report of a cluster that runs by itself, now or when its job has ended.

std::vector<FlagSpec> ReportFlags();

// Exit code 0: printed and, if asked for, written. 3: server 0 did not answer. 1: no job, or the
// job's books do not reconcile.
int ReportCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

struct ReportRequest {
  std::string file;  // empty: only printed
  bool wait = false;
  // With `wait`: for how long server 0 may be away without a single answer.
  absl::Duration patience = absl::Seconds(60);
  // How long one parked question lasts before the server's health is asked about.
  absl::Duration parked_for = absl::Seconds(30);
};

// The same on `cluster`.
int MakeReport(ClusterClient& cluster, const ReportRequest& request, const Clock& clock,
               std::ostream& out, std::ostream& error);

}  // namespace torchps
