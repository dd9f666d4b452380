#include "tools/run/fetch_data.h"

#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "data/download/mnist_download.h"
#include "tools/base/child_process.h"

namespace torchps {

absl::Status FetchData(const JobSpec& job, int interrupt_fd, std::ostream& out,
                       LaunchOptions& launch) {
  if (!launch.download || launch.elsewhere) return absl::OkStatus();
  DownloadOptions fetch;
  fetch.mirrors = absl::StrSplit(launch.mirrors, ',', absl::SkipEmpty());
  fetch.log = [&out](const std::string& line) { out << line << std::endl; };
  fetch.is_stopped = [interrupt_fd] {
    return WaitForActivity({}, interrupt_fd, absl::ZeroDuration());
  };
  const std::string& path = launch.data.empty() ? job.data().path() : launch.data;
  absl::StatusOr<std::string> directory =
      DownloadForJob(job.data().source(), path, std::move(fetch));
  if (!directory.ok()) return directory.status();
  launch.data = *std::move(directory);
  launch.download = false;
  launch.mirrors.clear();
  return absl::OkStatus();
}

}  // namespace torchps
