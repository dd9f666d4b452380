#include "tools/run/describe_run.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/base/format.h"
#include "tools/report/report_words.h"

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

}  // namespace torchps
