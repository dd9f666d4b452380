#include "torchps/tools/job_commands.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torchps/common/process/command_line.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/report/report_text.h"

namespace torchps {
namespace {

// Generous: a server writes a few hundred MB per second.
constexpr absl::Duration kCheckpointTimeout = absl::Minutes(20);

}  // namespace

std::vector<FlagSpec> CheckpointFlags() { return ClusterFlags(); }

int TakeCheckpoint(ClusterClient& cluster, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<CheckpointStatus> taken = cluster.TakeCheckpoint(kCheckpointTimeout);
  if (!taken.ok()) {
    error << "psctl: no checkpoint was taken: " << taken.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(taken.status()));
  }
  out << "checkpoint " << taken->number() << ": "
      << FormatBytes(static_cast<double>(taken->bytes())) << " in "
      << FormatSeconds(taken->seconds()) << ", no block was held for more than "
      << FormatSeconds(taken->longest_pause_seconds()) << "\n"
      << taken->directory() << std::endl;
  return static_cast<int>(ExitCode::kOk);
}

int CheckpointCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<std::unique_ptr<ClusterClient>> cluster =
      ConnectByFlags(flags, "checkpoint");
  if (!cluster.ok()) {
    error << "psctl: " << cluster.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(cluster.status()));
  }
  return TakeCheckpoint(**cluster, out, error);
}

namespace {

// Includes the time for a last checkpoint.
constexpr absl::Duration kStopTimeout = absl::Seconds(60);
constexpr absl::Duration kAnswerTimeout = absl::Seconds(3);

// Returns one line for each server of the job that is missing from --servers, with the command to
// stop it. Returns "" if it knows of no missing server.
std::string NotNamedText(ClusterClient& cluster) {
  const std::vector<std::string>& named = cluster.addresses();
  const absl::StatusOr<ServerStatus> first = cluster.GetServerStatus(0, kAnswerTimeout);
  if (!first.ok() || first->job_id() == 0 || first->server_index() != 0) return "";
  const int lacking = first->server_count() - static_cast<int>(named.size());
  if (lacking <= 0) return "";
  // The check above has shown that this server is a job's coordinator. On any other server, the
  // request would create a coordinator, and that server would then require a last checkpoint to
  // stop.
  const absl::StatusOr<JobStatus> job =
      cluster.GetJobStatus(/*wait_until_done=*/false, kAnswerTimeout);
  std::vector<int> absent;
  for (int i = 0; job.ok() && i < job->server_size(); ++i) {
    const std::string& address = job->server(i).address();
    if (!address.empty() && std::count(named.begin(), named.end(), address) == 0) {
      absent.push_back(i);
    }
  }
  // A server may be listed under a different name than the one that workers use.
  if (static_cast<int>(absent.size()) != lacking) {
    return absl::StrCat("psctl: --servers names ", named.size(), " of the job's ",
                        first->server_count(), " servers; the others were not asked to stop\n");
  }
  std::string text;
  for (const int i : absent) {
    const std::string& address = job->server(i).address();
    absl::StrAppend(&text, "psctl: server ", i, " at ", address,
                    " was not asked to stop: --servers does not name it; 'psctl stop --servers=",
                    address, "' stops it\n");
  }
  return text;
}

}  // namespace

std::vector<FlagSpec> StopFlags() { return ClusterFlags(); }

int StopCluster(ClusterClient& cluster, std::ostream& out, std::ostream& error) {
  int stopped = 0;
  int stayed = 0;
  int refused = 0;
  // Must precede the shutdown of server 0, which knows the other servers.
  const std::string not_named = NotNamedText(cluster);
  // Server 0 stops first: it takes the last checkpoint of the job.
  for (int i = 0; i < static_cast<int>(cluster.addresses().size()); ++i) {
    const std::string& address = cluster.addresses()[i];
    const absl::Status status = cluster.Shutdown(i, "psctl stop", kStopTimeout);
    if (status.ok()) {
      ++stopped;
      out << "server " << i << " at " << address << " has stopped" << std::endl;
    } else {
      if (ExitCodeFor(status) == ExitCode::kRefused) {
        ++refused;
      } else if (status.code() != absl::StatusCode::kUnavailable) {
        ++stayed;
      }
      error << "psctl: " << NoAnswerText(i, address, status) << std::endl;
    }
  }
  error << not_named << std::flush;
  if (stayed > 0) return static_cast<int>(ExitCode::kFailed);
  if (refused > 0) return static_cast<int>(ExitCode::kRefused);
  return static_cast<int>(stopped > 0 ? ExitCode::kOk : ExitCode::kUnreachable);
}

int StopCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<std::unique_ptr<ClusterClient>> cluster = ConnectByFlags(flags, "stop");
  if (!cluster.ok()) {
    error << "psctl: " << cluster.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(cluster.status()));
  }
  return StopCluster(**cluster, out, error);
}

}  // namespace torchps
