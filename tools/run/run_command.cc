#include "tools/run/run_command.h"

#include <google/protobuf/text_format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/process/command_line.h"
#include "job/job_warnings.h"
#include "tools/base/child_process.h"
#include "tools/base/interrupt.h"
#include "tools/run/fetch_model.h"
#include "tools/run/progress_view.h"
#include "tools/run/run_in_directory.h"
#include "tools/run_plan/plan_run.h"

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

namespace {

// Warns about settings that may train worse than the user expects.
void WriteHints(const JobSpec& job, std::ostream& error) {
  if (const std::string warning = MomentumWarning(job); !warning.empty()) {
    error << "psctl: warning: " << warning << std::endl;
  } else if (const std::string hint = RateHint(job); !hint.empty()) {
    error << "psctl: hint: " << hint << std::endl;
  }
  if (job.training().clip_norm() > 0 && job.workers() > 1) {
    error << "psctl: hint: training.clip_norm clips each worker's part of a batch, so "
          << job.workers() << " workers do not train like one worker" << std::endl;
  }
}

int DryRun(RunPlan plan, int interrupt_fd, std::ostream& out, std::ostream& error) {
  const absl::Status fetched = FetchData(plan.job, interrupt_fd, out, plan.launch);
  if (fetched.ok()) return BecomeDryRun(plan, error);
  error << "psctl: " << fetched.message() << std::endl;
  return static_cast<int>(ExitCodeFor(fetched));
}

}  // namespace

int RunCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  // Created first, so that the threads of gRPC inherit the blocked signals.
  const Interrupt interrupt;
  absl::StatusOr<RunPlan> plan = PlanRun(flags, OwnDirectory());
  if (!plan.ok()) {
    error << "psctl: " << plan.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(plan.status()));
  }
  WriteHints(plan->job, error);
  if (flags.Has("dry_run")) return DryRun(*std::move(plan), interrupt.fd(), out, error);
  ClusterRun::Options options(*std::move(plan));
  options.view = ProgressView::OfTerminal();
  const SteadyClock clock;
  return RunInDirectory(std::move(options), out, error, clock, interrupt.fd());
}

}  // namespace torchps
