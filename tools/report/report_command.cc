#include "tools/report/report_command.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/process/command_line.h"
#include "tools/report/cluster_client.h"
#include "tools/report/report_json.h"
#include "tools/report/report_text.h"

namespace torchps {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(5);

// Blocks until the job has ended. Each waiting request is limited, because a vanished machine would
// not end it. A short request then checks that the server still answers.
absl::Status WaitUntilDone(ClusterClient& cluster, const ReportRequest& request, const Clock& clock,
                           std::ostream& error) {
  absl::Duration answered_at = clock.Now();
  for (;;) {
    if (cluster.GetJobStatus(/*wait_until_done=*/true, request.parked_for).ok()) {
      return absl::OkStatus();
    }
    const absl::Status status =
        cluster.GetJobStatus(/*wait_until_done=*/false, kAnswerTimeout).status();
    const absl::Duration now = clock.Now();
    if (status.ok()) {
      answered_at = now;
      continue;
    }
    const bool away = status.code() == absl::StatusCode::kUnavailable ||
                      status.code() == absl::StatusCode::kDeadlineExceeded;
    if (!away || now - answered_at >= request.patience) return status;
    error << "psctl: waiting for server 0 at " << cluster.addresses()[0] << ": " << status.message()
          << std::endl;
  }
}

}  // namespace

std::vector<FlagSpec> ReportFlags() {
  std::vector<FlagSpec> flags = ClusterFlags();
  flags.push_back({"wait", "", "Waits for server 0 to start and for the job to end."});
  flags.push_back({"patience", "DURATION",
                   "With --wait: how long server 0 may be unreachable. Default: 60s.", false, 0,
                   "wait"});
  flags.push_back({"report", "FILE", "Also writes the report as JSON (docs/operate.md)."});
  return flags;
}

int MakeReport(ClusterClient& cluster, const ReportRequest& request, const Clock& clock,
               std::ostream& out, std::ostream& error) {
  const auto fail = [&](const absl::Status& status) {
    error << "psctl: " << NoAnswerText(0, cluster.addresses()[0], status) << std::endl;
    return static_cast<int>(ExitCodeFor(status));
  };
  if (request.wait) {
    const absl::Status status = WaitUntilDone(cluster, request, clock, error);
    if (!status.ok()) return fail(status);
  }
  const absl::StatusOr<JobStatus> job =
      cluster.GetJobStatus(/*wait_until_done=*/false, kAnswerTimeout);
  if (!job.ok()) return fail(job.status());
  const std::vector<ServerAnswer> answers = AskAllServers(cluster, kAnswerTimeout);
  const std::string wrong_list = ServerListText(job, answers);
  if (job->phase() == JobStatus::NO_JOB) {
    error << "psctl: there is no job to report on: "
          << (FirstIsAnother(answers) ? wrong_list : "no worker has connected yet\n") << std::flush;
    return static_cast<int>(ExitCode::kFailed);
  }
  if (!wrong_list.empty()) error << "psctl: warning: the report is incomplete: " << wrong_list;
  const Report report = BuildReport(*job, answers);
  out << ReportText(report);
  if (!request.file.empty()) {
    const absl::Status written = WriteFileAtomically(request.file, ReportJson(report));
    if (!written.ok()) {
      error << "psctl: " << written.message() << std::endl;
      return static_cast<int>(ExitCode::kFailed);
    }
    out << "\nreport: " << request.file << "\n";
  }
  out.flush();
  return static_cast<int>(report.reconciles().all() ? ExitCode::kOk : ExitCode::kFailed);
}

int ReportCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<std::unique_ptr<ClusterClient>> cluster = ConnectByFlags(flags, "report");
  if (!cluster.ok()) {
    error << "psctl: " << cluster.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(cluster.status()));
  }
  ReportRequest request;
  request.file = flags.Get("report");
  request.wait = flags.Has("wait");
  if (flags.Has("patience") && (!absl::ParseDuration(flags.Get("patience"), &request.patience) ||
                                request.patience < absl::ZeroDuration())) {
    error << "psctl: --patience=" << flags.Get("patience")
          << ": expected a duration such as 60s or 5m" << std::endl;
    return static_cast<int>(ExitCode::kUsage);
  }
  request.parked_for = std::clamp(request.patience / 2, absl::Seconds(1), absl::Seconds(30));
  return MakeReport(**cluster, request, SteadyClock(), out, error);
}

}  // namespace torchps
