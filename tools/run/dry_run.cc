#include "tools/run/dry_run.h"

#include <google/protobuf/text_format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process/exit_codes.h"
#include "tools/base/become_program.h"

namespace torchps {

int BecomeDryRun(const RunPlan& plan, std::ostream& error) {
  const LaunchOptions& launch = plan.launch;
  std::string job;
  google::protobuf::TextFormat::PrintToString(plan.job, &job);
  const int file = memfd_create("job.textproto", /*flags=*/0);
  if (file < 0 || write(file, job.data(), job.size()) != static_cast<ssize_t>(job.size())) {
    error << "psctl: cannot write the job for --dry_run: " << std::strerror(errno) << std::endl;
    return static_cast<int>(ExitCode::kFailed);
  }
  std::vector<std::string> words = {launch.worker_binary, "--dry_run",
                                    absl::StrCat("--job=/proc/self/fd/", file),
                                    absl::StrCat("--threads=", launch.threads)};
  if (!launch.data.empty()) words.push_back(absl::StrCat("--data=", launch.data));
  if (!launch.device.empty()) words.push_back(absl::StrCat("--device=", launch.device));
  return BecomeProgram(words, error);
}

}  // namespace torchps
