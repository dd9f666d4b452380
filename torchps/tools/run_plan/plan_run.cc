#include "torchps/tools/run_plan/plan_run.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "torchps/common/process/process_limits.h"
#include "torchps/common/types.h"
#include "torchps/job/built_ins.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/run_folder/run_directory.h"
#include "torchps/tools/run_plan/built_in_jobs.h"
#include "torchps/tools/run_plan/fault_plan.h"
#include "torchps/tools/run_plan/run_flags.h"

namespace torchps {

namespace {

// A larger number on one machine is probably a typing error.
constexpr int kMaxServers = 1024;
// Per model; each stage is a process.
constexpr int kMaxStages = 64;

// GPUs per machine and per worker, from --gpus.
struct Gpus {
  int per_host = 0;
  int per_worker = 0;
};

absl::StatusOr<std::optional<Gpus>> PlanGpus(const FlagValues& flags) {
  if (!flags.Has("gpus")) {
    if (!flags.Has("gpus_per_worker")) return std::optional<Gpus>();
    return absl::InvalidArgumentError("--gpus_per_worker needs --gpus=N, a machine's GPUs");
  }
  if (flags.Has("workers")) {
    return absl::InvalidArgumentError(
        "--gpus and --workers exclude each other: a machine runs one worker for its GPUs, or with "
        "--gpus_per_worker=M one for every M GPUs");
  }
  if (flags.Get("device", "cuda") != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat("--gpus and --device=", flags.Get("device"),
                                                   " exclude each other: --gpus selects the GPUs"));
  }
  const absl::StatusOr<int64_t> per_host = flags.Integer("gpus", 0, 1, kMaxGpus);
  if (!per_host.ok()) return per_host.status();
  const absl::StatusOr<int64_t> per_worker =
      flags.Integer("gpus_per_worker", *per_host, 1, kMaxGpus);
  if (!per_worker.ok()) return per_worker.status();
  return std::make_optional(Gpus{static_cast<int>(*per_host), static_cast<int>(*per_worker)});
}

absl::StatusOr<Hosts> HostsOfFile(const FlagValues& flags) {
  for (const char* flag : {"servers", "workers"}) {
    if (flags.Has(flag)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " and --hosts exclude each other: the file says how many"));
    }
  }
  return ReadHostsFile(flags.Get("hosts"));
}

absl::StatusOr<Hosts> HostsHere(const FlagValues& flags, int default_workers) {
  const absl::StatusOr<int64_t> servers = flags.Integer("servers", 2, 1, kMaxServers);
  if (!servers.ok()) return servers.status();
  const absl::StatusOr<int64_t> workers = flags.Integer("workers", default_workers, 1, kMaxSlots);
  if (!workers.ok()) return workers.status();
  Hosts hosts;
  hosts.servers.resize(*servers);
  hosts.workers.resize(*workers);
  return hosts;
}

// Splits each worker into processes, from --stages.
absl::Status PlanStages(const FlagValues& flags, Hosts* hosts) {
  if (flags.Has("hosts")) {
    return absl::InvalidArgumentError(
        "--stages and --hosts exclude each other: the file says where each stage runs, as "
        "'worker HOST:PORT,HOST:PORT'");
  }
  if (flags.Has("gpus")) {
    return absl::InvalidArgumentError(
        "--stages and --gpus exclude each other: each process of a worker computes on one device");
  }
  const absl::StatusOr<int64_t> stages = flags.Integer("stages", 0, 1, kMaxStages);
  if (!stages.ok()) return stages.status();
  return SplitIntoStages(static_cast<int>(*stages), hosts);
}

}  // namespace

absl::StatusOr<Hosts> PlanHosts(const FlagValues& flags, const JobSpec& job) {
  const absl::StatusOr<std::optional<Gpus>> gpus = PlanGpus(flags);
  if (!gpus.ok()) return gpus.status();
  absl::StatusOr<Hosts> hosts = flags.Has("hosts")
                                    ? HostsOfFile(flags)
                                    : HostsHere(flags, gpus->has_value() ? 1 : job.workers());
  if (hosts.ok() && flags.Has("stages")) {
    if (absl::Status split = PlanStages(flags, &*hosts); !split.ok()) return split;
  }
  if (hosts.ok() && gpus->has_value()) {
    const absl::Status spread = SpreadGpus((*gpus)->per_host, (*gpus)->per_worker, &*hosts);
    if (!spread.ok()) return spread;
  }
  // On one machine the slot numbers suffice to select the GPUs.
  if (hosts.ok() && flags.Has("hosts")) NumberProcesses(&*hosts);
  return hosts;
}

absl::Status CheckHosts(const FlagValues& flags, const Hosts& hosts) {
  const auto beyond = std::find_if(hosts.servers.begin(), hosts.servers.end(),
                                   [](const Place& place) { return !IsLoopback(place.host); });
  if (beyond != hosts.servers.end() && !flags.Has("insecure") && !flags.Has("certs")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the server on ", beyond->host, " would listen on the network without encryption; ",
        "give it certificates with --certs=DIR ('psctl certs' makes them; DIR must exist on every ",
        "machine), or set --insecure if that network is private"));
  }
  const auto stage_beyond = [](const Place& worker) {
    return std::any_of(worker.stages.begin(), worker.stages.end(),
                       [](const Place& stage) { return !IsLoopback(stage.host); });
  };
  const bool any_beyond = std::any_of(hosts.workers.begin(), hosts.workers.end(), stage_beyond);
  if (any_beyond && !flags.Has("certs")) {
    return absl::InvalidArgumentError(
        "the stages of a model on several machines require TLS; give them certificates with "
        "--certs=DIR ('psctl certs' makes them)");
  }
  const bool has_stages = std::any_of(hosts.workers.begin(), hosts.workers.end(),
                                      [](const Place& worker) { return !worker.stages.empty(); });
  if (has_stages && (flags.Has("target") || flags.Has("target_every"))) {
    return absl::InvalidArgumentError(
        "--target and --target_every measure the whole model in one process, so they do not work "
        "with a model in stages; the workers evaluate its epochs");
  }
  if (!flags.Has("hosts")) {
    for (const char* flag : {"ssh", "remote_binary_dir"}) {
      if (flags.Has(flag)) {
        return absl::InvalidArgumentError(absl::StrCat("--", flag, " works with --hosts only"));
      }
    }
  }
  return absl::OkStatus();
}

namespace {

// Returns the job as the workers will see it, with overrides and defaults applied, and checked.
absl::StatusOr<JobSpec> ReadJob(const LaunchOptions& launch) {
  const std::string& file = launch.job_file;
  const bool has_text = !BuiltInJob(file).empty() || IsReadOnce(file);
  absl::StatusOr<JobSpec> job = has_text ? ParseJobText(launch.job_text, file) : ParseJobFile(file);
  if (!job.ok()) return job.status();
  for (const std::string& assignment : launch.set) {
    if (const absl::Status status = ApplyOverride(&*job, assignment); !status.ok()) return status;
  }
  return NormalizeJobSpec(*std::move(job));
}

absl::Status FindPrograms(const FlagValues& flags, const std::string& program_directory,
                          LaunchOptions& launch) {
  if (flags.Has("hosts") && flags.Has("remote_binary_dir")) {
    const std::string directory = flags.Get("remote_binary_dir");
    launch.server_binary = flags.Get("server_binary", absl::StrCat(directory, "/ps_server"));
    launch.worker_binary = flags.Get("worker_binary", absl::StrCat(directory, "/ps_worker"));
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> server =
      FindProgram(flags, "server_binary", program_directory, "ps_server");
  if (!server.ok()) return server.status();
  absl::StatusOr<std::string> worker =
      FindProgram(flags, "worker_binary", program_directory, "ps_worker");
  if (!worker.ok()) return worker.status();
  launch.server_binary = *std::move(server);
  launch.worker_binary = *std::move(worker);
  return absl::OkStatus();
}

// The evaluator's default interval. It is accurate enough for runs of minutes, and measuring takes
// a few percent of one core for a small test set.
constexpr char kTargetEvery[] = "5s";

// Finds typing errors before processes start. Custom programs may define more models and data.
absl::Status CheckNames(const LaunchOptions& launch, const JobSpec& job, const Targets& targets) {
  if (!launch.device.empty()) {
    if (const absl::Status status = CheckDeviceNames(launch.device); !status.ok()) return status;
  }
  if (!IsOwnWorker(launch.worker_binary)) return absl::OkStatus();
  for (const absl::Status& status : {CheckBuiltInModel(job), CheckBuiltInData(job)}) {
    if (status.ok()) continue;
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(),
                     "; for a program with its own models or data, set --worker_binary"));
  }
  return targets.CheckMetrics(BuiltInMetrics());
}

// Divides the cores that psctl may use.
int ThreadsPerWorker(size_t workers) {
  return std::max(1, AvailableCores() / static_cast<int>(workers));
}

// Expands "~/", because a shell does not expand it in --dir=~/x.
std::string WithHome(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return absl::StartsWith(path, "~/") && home != nullptr ? absl::StrCat(home, path.substr(1))
                                                         : path;
}

absl::Status PlanDirectory(const FlagValues& flags, LaunchOptions& launch) {
  launch.resume = flags.Has("resume");
  if (!flags.Has("dir")) {
    if (!launch.resume) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--resume needs --dir=DIR, the directory with the job's state");
  }
  launch.dir = WithHome(flags.Get("dir"));
  if (launch.dir.empty()) return absl::InvalidArgumentError("--dir is empty");
  // On other machines, the servers check the directory.
  if (flags.Has("hosts")) return absl::OkStatus();
  std::error_code error;
  launch.dir = std::filesystem::absolute(launch.dir, error).lexically_normal().string();
  return CheckRunDirectory(launch.dir, launch.resume);
}

// Reads the targets and the measuring interval.
absl::Status PlanTargets(const FlagValues& flags, RunPlan& plan) {
  if (!flags.Has("target") && !flags.Has("target_every")) return absl::OkStatus();
  if (flags.Has("hosts")) {
    return absl::InvalidArgumentError(
        "--target and --target_every measure on this machine, so they do not work with --hosts; "
        "'psctl evaluate --servers=HOST:PORT,... --every=5s' measures such a job");
  }
  absl::StatusOr<Targets> targets = Targets::Parse(flags.All("target"));
  if (!targets.ok()) return targets.status();
  plan.targets = *std::move(targets);
  const std::string every = flags.Get("target_every", kTargetEvery);
  absl::Duration duration;
  if (!absl::ParseDuration(every, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target_every=", every, ": expected a duration such as 5s or 500ms"));
  }
  plan.launch.evaluate_every = every;
  return absl::OkStatus();
}

// Checks before the training that the report can be written.
absl::Status CheckReportFile(const std::string& file) {
  const std::filesystem::path directory = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (!directory.empty() && !std::filesystem::is_directory(directory, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--report=", file, ": there is no folder ", directory.string()));
  }
  if (std::filesystem::is_directory(file, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--report=", file, " is a folder; expected a file"));
  }
  return absl::OkStatus();
}

// Reads the job, and the locations of the parts.
absl::Status PlanJob(const FlagValues& flags, RunPlan& plan) {
  LaunchOptions& launch = plan.launch;
  launch.job_text = JobText(launch.job_file);
  absl::StatusOr<JobSpec> job = ReadJob(launch);
  if (!job.ok()) return job.status();
  absl::StatusOr<Hosts> hosts = PlanHosts(flags, *job);
  if (!hosts.ok()) return hosts.status();
  const int workers = static_cast<int>(hosts->workers.size());
  if (workers != job->workers()) {
    // Reads the job again, because defaults and limits may depend on the number of workers.
    launch.set.push_back(absl::StrCat("workers=", workers));
    job = ReadJob(launch);
    if (!job.ok()) return job.status();
  }
  plan.job = *std::move(job);
  plan.hosts = *std::move(hosts);
  if (const absl::Status status = CheckHosts(flags, plan.hosts); !status.ok()) return status;
  if (flags.Has("hosts")) {
    launch.elsewhere = true;
    if (flags.Has("ssh")) launch.ssh = absl::StrSplit(flags.Get("ssh"), ' ', absl::SkipEmpty());
  }
  return absl::OkStatus();
}

// Sets the workers' threads, the restarts and the slow workers.
absl::Status PlanParts(const FlagValues& flags, RunPlan& plan) {
  LaunchOptions& launch = plan.launch;
  size_t processes = 0;
  for (const Place& worker : plan.hosts.workers) {
    processes += std::max<size_t>(1, worker.stages.size());
  }
  const int default_threads = flags.Has("hosts") ? 0 : ThreadsPerWorker(processes);
  const absl::StatusOr<int64_t> threads = flags.Integer("threads", default_threads, 1, 1024);
  if (!threads.ok()) return threads.status();
  launch.threads = static_cast<int>(*threads);
  const absl::StatusOr<int64_t> loader_threads = flags.Integer("loader_threads", 0, 0, 256);
  if (!loader_threads.ok()) return loader_threads.status();
  launch.loader_threads = static_cast<int>(*loader_threads);
  const absl::StatusOr<int64_t> restarts =
      flags.Integer("restarts", plan.restarts.most, 0, 1000000);
  if (!restarts.ok()) return restarts.status();
  plan.restarts.most = static_cast<int>(*restarts);
  absl::StatusOr<std::map<int, std::string>> slow_workers =
      ParseSlowWorkers(flags, static_cast<int>(plan.hosts.workers.size()));
  if (!slow_workers.ok()) return slow_workers.status();
  launch.slow_workers = *std::move(slow_workers);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunPlan> PlanRun(const FlagValues& flags, const std::string& program_directory) {
  // A run on this machine saves the job in the run folder.
  const bool has_kept_job = flags.Has("resume") && !flags.Has("hosts");
  if (!flags.Has("job") && !has_kept_job) {
    return absl::InvalidArgumentError(
        "'psctl run' needs --job=FILE, or the name of a job: digits, mnist, text");
  }
  RunPlan plan;
  LaunchOptions& launch = plan.launch;
  if (const absl::Status status = PlanDirectory(flags, launch); !status.ok()) return status;
  launch.job_file = flags.Get("job", absl::StrCat(launch.dir, "/job.textproto"));
  launch.set = Assignments(flags);
  launch.data = flags.Get("data");
  launch.download = flags.Has("download");
  launch.mirrors = flags.Get("mirrors");
  launch.device = flags.Get("device", flags.Has("gpus") ? "cuda" : "");
  launch.patience = flags.Get("patience");
  launch.certs = flags.Get("certs");
  launch.insecure = flags.Has("insecure");
  plan.report_file = flags.Get("report");
  plan.flags_again = FlagsAgain(flags);

  if (const absl::Status status = PlanJob(flags, plan); !status.ok()) return status;
  if (const absl::Status status = PlanParts(flags, plan); !status.ok()) return status;
  if (const absl::Status status = PlanTargets(flags, plan); !status.ok()) return status;
  if (flags.Has("dry_run") && (flags.Has("hosts") || flags.Has("stages"))) {
    return absl::InvalidArgumentError(
        "--dry_run tries the whole model on this machine; leave out --hosts and --stages");
  }
  if (const absl::Status status = CheckReportFile(plan.report_file); !status.ok()) return status;
  if (const absl::Status status = FindPrograms(flags, program_directory, launch); !status.ok()) {
    return status;
  }
  if (const absl::Status status = CheckNames(launch, plan.job, plan.targets); !status.ok()) {
    return status;
  }
  return plan;
}

}  // namespace torchps
