#include "torchps/tools/run/run_command.h"

#include <google/protobuf/text_format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "torchps/common/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/job/job_spec.h"
#include "torchps/security/credentials.h"
#include "torchps/storage/file_system.h"
#include "torchps/storage/run_folder.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/base/interrupt.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/run/fetch_model.h"
#include "torchps/tools/run/progress_view.h"
#include "torchps/tools/run/run_report.h"
#include "torchps/tools/run_folder/run_directory.h"
#include "torchps/tools/run_folder/run_record.h"
#include "torchps/tools/run_plan/built_in_jobs.h"
#include "torchps/tools/run_plan/plan_run.h"

namespace torchps {

namespace {

// Returns the job as saved in the run folder. Sets the data path, so that later commands find the
// data without the run's flags.
JobSpec KeptJob(const ClusterRun::Options& options) {
  JobSpec job = options.job;
  const LaunchOptions& launch = options.launch;
  const std::string path = launch.data.empty() ? job.data().path() : launch.data;
  job.mutable_data()->set_path(launch.elsewhere ? path : AbsoluteIfThere(path));
  return job;
}

// Opens the run folder, creating one if the user did not name it. If parts are remote, the flag
// --dir names the servers' folder on their machines. `lock` reserves the folder for this run.
absl::StatusOr<std::string> OpenRunDirectory(ClusterRun::Options& options, absl::Time now,
                                             std::unique_ptr<FileLock>& lock) {
  LaunchOptions& launch = options.launch;
  launch.durable = options.job.durability().level() != DurabilitySpec::NONE;
  std::string dir = launch.elsewhere ? "" : launch.dir;
  if (dir.empty()) {
    const absl::StatusOr<std::string> made = MakeRunFolder(options.job.name(), now);
    if (!made.ok()) return made.status();
    dir = *made;
  }
  if (const absl::Status made = PrepareRunDirectory(dir); !made.ok()) return made;
  // Remote servers without a --dir use the same name, relative to ssh's starting directory.
  if (!launch.elsewhere || launch.dir.empty()) launch.dir = dir;
  if (!launch.elsewhere && !launch.disks_apart) {
    launch.dir = StateDirectory(dir);
    launch.model_dir = dir;
  }
  absl::StatusOr<std::unique_ptr<FileLock>> locked = LockRunDirectory(dir);
  if (!locked.ok()) return locked.status();
  lock = *std::move(locked);
  // A resumed job may still be rejected; until it is accepted, the existing job file describes the
  // model.
  const bool later = launch.resume && std::filesystem::exists(dir + "/job.textproto");
  const JobSpec job = KeptJob(options);
  absl::Status kept = later ? absl::OkStatus() : KeepJob(dir, job);
  if (kept.ok() && !launch.resume) kept = KeepWrittenJob(dir, launch.job_text);
  if (!kept.ok()) return kept;
  // Workers on this machine read the job from a file. A built-in job has none, and some files can
  // be read only once, so these workers get the job file in the run folder.
  if (!launch.elsewhere && (!BuiltInJob(launch.job_file).empty() || IsReadOnce(launch.job_file))) {
    launch.job_file = absl::StrCat(dir, "/job.textproto");
  }
  if (later) {
    options.on_accepted = [dir, job] { KeepJob(dir, job).IgnoreError(); };
  }
  options.log_dir = absl::StrCat(dir, "/logs");
  if (options.report_file.empty()) options.report_file = absl::StrCat(dir, "/report.json");
  return dir;
}

RunRecord GetRecord(const ClusterRun::Options& options, const std::string& dir) {
  const LaunchOptions& launch = options.launch;
  const std::string& worker = launch.worker_binary;
  RunRecord record = RecordOfThisRun(IsOwnWorker(worker) ? "" : worker);
  record.data = launch.data;
  record.certs = AbsoluteIfThere(launch.certs);
  if (options.report_file != absl::StrCat(dir, "/report.json")) {
    std::error_code error;
    record.report = std::filesystem::absolute(options.report_file, error).string();
  }
  if (launch.elsewhere) {
    for (const Place& place : options.hosts.workers) record.worker_hosts.push_back(place.host);
  }
  return record;
}

// Prints the error and returns the exit code.
int Fail(const absl::Status& status, std::ostream& error) {
  error << "psctl: " << status.message() << std::endl;
  return static_cast<int>(ExitCodeFor(status));
}

// Progress of a run, for the decision to keep the folder.
struct Progress {
  bool untrained = false;  // the report shows a job without updates
  bool accepted = false;
};

// Sets callbacks that record the server addresses and the progress. Borrows `options`, `record` and
// `progress`.
void WatchRun(const std::string& dir, ClusterRun::OnReport on_report, ClusterRun::Options& options,
              RunRecord& record, Progress& progress) {
  options.on_servers = [&](const std::vector<std::string>& addresses) {
    record.servers = addresses;
    WriteRunRecord(dir, record).IgnoreError();
  };
  const bool begins_here = !options.launch.resume && !options.launch.elsewhere;
  options.on_report = [begins_here, on_report, &progress](const Report& report) {
    progress.untrained = begins_here && IsUntrained(report);
    if (on_report) on_report(report);
  };
  options.on_accepted = [before = std::move(options.on_accepted), &progress] {
    if (before) before();
    progress.accepted = true;
  };
}

}  // namespace

int RunInDirectory(ClusterRun::Options options, std::ostream& out, std::ostream& error,
                   const Clock& clock, int interrupt_fd, ClusterRun::OnReport on_report) {
  const absl::StatusOr<std::shared_ptr<CertificateFiles>> certificates =
      OpenCertificates(options.launch.certs, Role::kOperator, [](const std::string&) {});
  if (!certificates.ok()) return Fail(certificates.status(), error);
  const absl::Status fetched = FetchData(options.job, interrupt_fd, out, options.launch);
  if (!fetched.ok()) return Fail(fetched, error);
  const absl::Time began = absl::Now();
  const bool is_new = options.launch.elsewhere || options.launch.dir.empty();
  std::unique_ptr<FileLock> lock;
  const absl::StatusOr<std::string> dir = OpenRunDirectory(options, began, lock);
  if (!dir.ok()) return Fail(dir.status(), error);
  RunRecord record = GetRecord(options, *dir);
  if (const absl::Status kept = WriteRunRecord(*dir, record); !kept.ok()) return Fail(kept, error);

  Progress progress;
  WatchRun(*dir, std::move(on_report), options, record, progress);
  // If disks are separate, the model is on server 0's disk.
  const std::string model_dir =
      options.launch.disks_apart ? ServerDirectory(options.launch, 0) : *dir;
  const LaunchOptions launch = options.launch;
  const std::string first_host = options.hosts.servers.front().host;
  const std::string again = options.flags_again;
  // Allows time for the last checkpoint.
  if (options.launch.keeps_state()) options.stop_grace = absl::Seconds(30);
  const auto connect = [&](std::vector<std::string> addresses) {
    return ConnectToCluster(std::move(addresses), *certificates);
  };
  ClusterRun run(std::move(options), connect, out, error, clock, interrupt_fd);
  const int code = run.Run();
  EndRecord(run.outcome(), code, record);
  WriteRunRecord(*dir, record).IgnoreError();
  if (code != 0 && progress.untrained) RemoveState(*dir);
  if (code == 0 && launch.elsewhere) {
    const absl::Status copied = FetchModels(launch, first_host, *dir);
    if (!copied.ok()) error << "psctl: " << copied.message() << std::endl;
  }
  out << DescribeModel(model_dir, began) << std::flush;
  if (code == 0) return code;
  error << ResumeCommand(*dir, again) << std::flush;
  // For a bad flag or file, the error message is complete and the logs add no information.
  const bool told = code == int(ExitCode::kUsage) || code == int(ExitCode::kData);
  if (is_new && !progress.accepted) RemoveUnusedRun(*dir, told);
  return code;
}

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
