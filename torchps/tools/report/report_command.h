#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/proto/report.pb.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/report/cluster_client.h"

namespace torchps {

// Returns the report as indented JSON (docs/operate.md), ending with a newline.
//
// Protobuf's JSON mapping writes 64-bit integers and non-finite numbers as strings, and does not
// use null, but the report's format promises numbers and null. This function corrects the output
// with one pass over the descriptor.
std::string ReportJson(const Report& report);

// Parses the output of ReportJson(). The result equals the original report, except for digits that
// the JSON omits and fields of newer versions. Non-finite numbers become NaN. DATA_LOSS: not a
// report.
absl::StatusOr<Report> ParseReportJson(const std::string& text);

// Writes `text` to a temporary file and renames it to `path`, so that readers see either the old or
// the complete new file. PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED: the message contains
// the path and the system's reason.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);

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
  // The longest time of one waiting request. After it, a short request checks that the server still
  // answers.
  absl::Duration parked_for = absl::Seconds(30);
};

// Reports on `cluster`.
int MakeReport(ClusterClient& cluster, const ReportRequest& request, const Clock& clock,
               std::ostream& out, std::ostream& error);

}  // namespace torchps
