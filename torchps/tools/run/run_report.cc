#include "torchps/tools/run/run_report.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/report/report.h"
#include "torchps/tools/report/report_command.h"
#include "torchps/tools/report/report_text.h"

namespace torchps {

std::vector<std::string> DescribeRun(const JobSpec& job, const LaunchOptions& launch,
                                     const Hosts& hosts,
                                     const std::vector<std::string>& addresses) {
  // For a custom module, names the program; the report adds details.
  const std::string model = job.model().name().empty()
                                ? launch.worker_binary.substr(launch.worker_binary.rfind('/') + 1)
                                : absl::StrCat(job.model().name(), " on ", job.data().source());
  std::string workers = Count(static_cast<int64_t>(hosts.workers.size()), "worker");
  if (const auto& stages = hosts.workers.front().stages; !stages.empty()) {
    absl::StrAppend(&workers, " with ", Count(static_cast<int64_t>(stages.size()), "stage"),
                    " each");
  }
  if (launch.threads > 0) {
    absl::StrAppend(&workers, " with ", Count(launch.threads, "thread"), " each");
  }
  return {absl::StrCat(job.name(), ": ", model, ", ", Count(job.training().epochs(), "epoch"), ", ",
                       DescribeConsistency(job.consistency())),
          absl::StrCat(Count(static_cast<int64_t>(addresses.size()), "server"), ", ", workers),
          absl::StrCat("watch it: psctl status --watch --servers=", absl::StrJoin(addresses, ",")),
          ""};
}

namespace {

// The processes of a worker restart together, so the highest count is the worker's.
void AddRestarts(const PartRestarts& restarts, Report* report) {
  PartRestarts whole;
  for (const auto& [part, count] : restarts) {
    int& most = whole[{part.is_server, part.index}];
    most = std::max(most, count);
  }
  for (const auto& [part, count] : whole) {
    if (count == 0) continue;
    Report::Restarts& all = *report->mutable_restarts();
    if (part.is_server) {
      all.set_servers(all.servers() + count);
    } else {
      all.set_workers(all.workers() + count);
    }
  }
}

}  // namespace

absl::StatusOr<std::optional<Report>> AskForReport(ClusterClient& cluster,
                                                   const std::string& address, bool finished,
                                                   absl::Duration timeout,
                                                   const PartRestarts& restarts,
                                                   const Targets& targets) {
  const absl::StatusOr<JobStatus> job = cluster.GetJobStatus(/*wait_until_done=*/false, timeout);
  if (!job.ok()) {
    return absl::Status(job.status().code(), absl::StrCat("no report: server 0 at ", address, ": ",
                                                          job.status().message()));
  }
  if (job->phase() == JobStatus::NO_JOB) {
    if (!finished) return std::nullopt;
    return absl::InternalError(
        "the workers ended without having submitted a job; does the program of --worker_binary "
        "call "
        "TrainMain?");
  }
  Report report = BuildReport(*job, AskAllServers(cluster, timeout));
  AddRestarts(restarts, &report);
  for (const Report::Target& target : targets.reached()) *report.add_targets() = target;
  return report;
}

absl::Status ShowReport(const Report& report, const std::string& file, std::ostream& out) {
  if (!report.epochs().empty()) out << "\n" << ReportText(report) << std::flush;
  if (file.empty()) return absl::OkStatus();
  const absl::Status written = WriteFileAtomically(file, ReportJson(report));
  if (written.ok()) out << "\nreport: " << file << std::endl;
  return written;
}

bool IsUntrained(const Report& report) {
  const auto silent = [](const Report::Server& server) { return server.has_error(); };
  return report.versions().max() == 0 &&
         std::none_of(report.servers().begin(), report.servers().end(), silent);
}

absl::Status JudgeReport(const Report& report, bool finished) {
  if (report.has_failed()) {
    return absl::InternalError(absl::StrCat(report.name(), " has failed: ", report.failed()));
  }
  if (finished && !report.finished()) {
    return absl::InternalError(
        absl::StrCat("all workers ended, but the job is still ", report.phase()));
  }
  return absl::OkStatus();
}

}  // namespace torchps
