#include "tools/report/server_list.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {
namespace {

bool HasJob(const ServerAnswer& answer) {
  return answer.status.ok() && answer.status->job_id() != 0;
}

// Returns the complete list as a flag, or advice if the addresses are unknown.
std::string WholeList(const absl::StatusOr<JobStatus>& job, int count) {
  std::vector<std::string> addresses;
  if (job.ok()) {
    for (const ServerAddress& place : job->server()) {
      if (!place.address().empty()) addresses.push_back(place.address());
    }
  }
  if (static_cast<int>(addresses.size()) != count) {
    return "list all servers, in the order that the workers use";
  }
  return absl::StrCat("list all servers, in order: --servers=", absl::StrJoin(addresses, ","));
}

}  // namespace

std::string ServerListText(const absl::StatusOr<JobStatus>& job,
                           const std::vector<ServerAnswer>& servers) {
  int count = job.ok() ? job->server_size() : 0;
  std::set<int> named;
  std::string elsewhere;
  for (int i = 0; i < static_cast<int>(servers.size()); ++i) {
    const ServerAnswer& answer = servers[static_cast<size_t>(i)];
    // Servers that are down or do not host a job count as correctly placed.
    const int index = HasJob(answer) ? answer.status->server_index() : i;
    named.insert(index);
    if (HasJob(answer)) count = std::max(count, answer.status->server_count());
    if (index != i && elsewhere.empty()) {
      elsewhere = absl::StrCat(answer.address, " is server ", index,
                               " of the job, but --servers lists it as server ", i);
    }
  }
  std::vector<int> lacking;
  for (int i = 0; i < count; ++i) {
    if (named.count(i) == 0) lacking.push_back(i);
  }
  if (lacking.empty() && elsewhere.empty()) return "";
  const std::string what =
      lacking.empty() ? elsewhere
                      : absl::StrCat("--servers lacks server", lacking.size() == 1 ? " " : "s ",
                                     absl::StrJoin(lacking, ", "), " of the job's ", count);
  return absl::StrCat(what, "; ", WholeList(job, count), "\n");
}

bool FirstIsAnother(const std::vector<ServerAnswer>& servers) {
  return !servers.empty() && HasJob(servers[0]) && servers[0].status->server_index() != 0;
}

}  // namespace torchps
