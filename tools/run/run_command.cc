#include "tools/run/run_command.h"

#include <google/protobuf/text_format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/process/available_cores.h"
#include "common/process/exit_codes.h"
#include "data/download/mnist_download.h"
#include "job/built_ins.h"
#include "job/job_file.h"
#include "job/job_override.h"
#include "job/job_spec.h"
#include "job/momentum.h"
#include "job/rate_hint.h"
#include "security/credentials.h"
#include "storage/file_system.h"
#include "storage/run_folder.h"
#include "tools/base/child_process.h"
#include "tools/base/find_program.h"
#include "tools/base/format.h"
#include "tools/base/interrupt.h"
#include "tools/run/built_in_jobs.h"
#include "tools/run/handicaps.h"
#include "tools/run/plan_hosts.h"
#include "tools/run/progress_view.h"
#include "tools/run/run_report.h"
#include "tools/run_folder/run_directory.h"
#include "tools/run_folder/run_record.h"

namespace torchps {
namespace {

// The job as its workers will see it: file, overrides, defaults, checks.
absl::StatusOr<JobSpec> ReadJob(const std::string& file, const std::vector<std::string>& set) {
  const std::string built_in = BuiltInJob(file);
  absl::StatusOr<JobSpec> job =
      built_in.empty() ? ParseJobFile(file) : ParseJobText(built_in, file);
  if (!job.ok()) return job.status();
  for (const std::string& assignment : set) {
    if (const absl::Status status = ApplyOverride(&*job, assignment); !status.ok()) return status;
  }
  return NormalizeJobSpec(*std::move(job));
}

// Returns the text of a job file, or of a job that psctl brings along; empty if it cannot be read.
std::string JobText(const std::string& file) {
  std::string built_in = BuiltInJob(file);
  if (!built_in.empty()) return built_in;
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
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
      FindProgram(flags, "server_binary", program_directory, "server", "ps_server");
  if (!server.ok()) return server.status();
  absl::StatusOr<std::string> worker =
      FindProgram(flags, "worker_binary", program_directory, "program", "ps_worker");
  if (!worker.ok()) return worker.status();
  launch.server_binary = *std::move(server);
  launch.worker_binary = *std::move(worker);
  return absl::OkStatus();
}

// Flags that set one field of the job.
struct ShortForm {
  const char* flag;
  const char* field;
};
constexpr ShortForm kShortForms[] = {{"epochs", "training.epochs"},
                                     {"batch_size", "training.batch_size"},
                                     {"optimizer", "optimizer.kind"},
                                     {"lr", "optimizer.learning_rate"},
                                     {"seed", "seed"}};

// What --set and its short forms assign, in this order.
std::vector<std::string> Assignments(const FlagValues& flags) {
  std::vector<std::string> assignments = flags.All("set");
  for (const ShortForm& form : kShortForms) {
    if (flags.Has(form.flag)) {
      assignments.push_back(absl::StrCat(form.field, "=", flags.Get(form.flag)));
    }
  }
  return assignments;
}

bool IsShortForm(const std::string& flag) {
  return std::any_of(std::begin(kShortForms), std::end(kShortForms),
                     [&flag](const ShortForm& form) { return flag == form.flag; });
}

// Fine enough for runs of minutes, and a few per cent of one core for a small test set.
constexpr char kTargetEvery[] = "5s";

// A typo that ps_worker would tell when servers and other workers had been started. Other programs
// bring their own models and data.
absl::Status CheckNames(const LaunchOptions& launch, const JobSpec& job, const Targets& targets) {
  if (!launch.device.empty()) {
    if (const absl::Status status = CheckDeviceNames(launch.device); !status.ok()) return status;
  }
  if (!IsOwnWorker(launch.worker_binary)) return absl::OkStatus();
  for (const absl::Status& status : {CheckBuiltInModel(job), CheckBuiltInData(job)}) {
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat(status.message(),
                                                    "; a program with its own is named with "
                                                    "--worker_binary"));
  }
  return targets.CheckMetrics(BuiltInMetrics());
}

// What is typed again where the job goes on: all but what its folder and its file there say.
std::string FlagsAgain(const FlagValues& flags) {
  std::string words;
  for (const FlagSpec& flag : RunFlags()) {
    const std::string& name = flag.name;
    if (name == "job" || name == "set" || name == "workers" || name == "dir" || name == "resume" ||
        IsShortForm(name)) {
      continue;
    }
    for (const std::string& value : flags.All(name)) {
      const std::string word = absl::StrCat("--", name, value.empty() ? "" : "=", value);
      absl::StrAppend(&words, " ", ShellQuoted(word));
    }
  }
  return words;
}

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  const auto& kind = *OptimizerSpec::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kind.field_count(); ++i) names.push_back(kind.field(i)->name());
  return names;
}

// Each worker's part of the cores that psctl may use.
int ThreadsPerWorker(size_t workers) {
  return std::max(1, AvailableCores() / static_cast<int>(workers));
}

// A shell replaces ~ at the beginning of a word only, and not in --dir=~/x.
std::string WithHome(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return absl::StartsWith(path, "~/") && home != nullptr ? absl::StrCat(home, path.substr(1))
                                                         : path;
}

absl::Status PlanDirectory(const FlagValues& flags, LaunchOptions& launch) {
  launch.resume = flags.Has("resume");
  if (!flags.Has("dir")) {
    if (!launch.resume) return absl::OkStatus();
    return absl::InvalidArgumentError("--resume needs --dir=DIR, where the job's state is");
  }
  launch.dir = WithHome(flags.Get("dir"));
  if (launch.dir.empty()) return absl::InvalidArgumentError("--dir is empty");
  // What lies on other machines their servers will say.
  if (flags.Has("hosts")) return absl::OkStatus();
  std::error_code error;
  launch.dir = std::filesystem::absolute(launch.dir, error).lexically_normal().string();
  return CheckRunDirectory(launch.dir, launch.resume);
}

// Which targets are to be met, and how often it is looked.
absl::Status PlanTargets(const FlagValues& flags, ClusterRun::Options& options) {
  if (!flags.Has("target") && !flags.Has("target_every")) return absl::OkStatus();
  if (flags.Has("hosts")) {
    return absl::InvalidArgumentError(
        "--target and --target_every measure on this machine, so they do not go with --hosts; "
        "'psctl evaluate --servers=HOST:PORT,... --every=5s' measures such a job");
  }
  absl::StatusOr<Targets> targets = Targets::Parse(flags.All("target"));
  if (!targets.ok()) return targets.status();
  options.targets = *std::move(targets);
  const std::string every = flags.Get("target_every", kTargetEvery);
  absl::Duration duration;
  if (!absl::ParseDuration(every, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target_every=", every, ": expected a duration such as 5s or 500ms"));
  }
  options.launch.evaluate_every = every;
  return absl::OkStatus();
}

// The job as the run's folder keeps it: with the place of its data, so that later commands find
// them without the flags of the run.
JobSpec KeptJob(const ClusterRun::Options& options) {
  JobSpec job = options.job;
  const LaunchOptions& launch = options.launch;
  const std::string path = launch.data.empty() ? job.data().path() : launch.data;
  job.mutable_data()->set_path(launch.elsewhere ? path : AbsoluteIfThere(path));
  return job;
}

// The folder of this run, made where the user named none; where the parts run elsewhere, what their
// servers keep lies there, under the name that the user gave. `lock` keeps it to this run.
absl::StatusOr<std::string> OpenRunDirectory(ClusterRun::Options& options, absl::Time now,
                                             std::unique_ptr<FileLock>& lock) {
  LaunchOptions& launch = options.launch;
  launch.durable = options.job.durability().level() != DurabilitySpec::NONE;
  std::string dir = launch.elsewhere ? "" : launch.dir;
  if (dir.empty()) {
    const absl::StatusOr<std::string> made = MakeRunFolder(options.job.name(), now);
    if (!made.ok()) return made.status();
    dir = *made;
    if (!launch.elsewhere) launch.dir = dir;
  }
  if (const absl::Status made = PrepareRunDirectory(dir); !made.ok()) return made;
  absl::StatusOr<std::unique_ptr<FileLock>> locked = LockRunDirectory(dir);
  if (!locked.ok()) return locked.status();
  lock = *std::move(locked);
  // A resumed job may yet be refused, and then the model there is still that of the file there.
  const bool later = launch.resume && std::filesystem::exists(dir + "/job.textproto");
  const JobSpec job = KeptJob(options);
  absl::Status kept = later ? absl::OkStatus() : KeepJob(dir, job);
  if (kept.ok() && !launch.resume) kept = KeepWrittenJob(dir, JobText(launch.job_file));
  if (!kept.ok()) return kept;
  // Its workers read it where it is a file.
  if (!launch.elsewhere && !BuiltInJob(launch.job_file).empty()) {
    launch.job_file = absl::StrCat(dir, "/job.textproto");
  }
  if (later) {
    options.on_accepted = [dir, job] { KeepJob(dir, job).IgnoreError(); };
  }
  options.log_dir = absl::StrCat(dir, "/logs");
  if (options.report_file.empty()) options.report_file = absl::StrCat(dir, "/report.json");
  return dir;
}

RunRecord RecordOf(const ClusterRun::Options& options, const std::string& dir) {
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

// Once, before the workers start, so that what fails is said once. Those of other machines do it
// themselves. CANCELLED: interrupted.
absl::Status Download(ClusterRun::Options& options, int interrupt_fd, std::ostream& out) {
  LaunchOptions& launch = options.launch;
  if (!launch.download || launch.elsewhere) return absl::OkStatus();
  DownloadOptions fetch;
  fetch.mirrors = absl::StrSplit(launch.mirrors, ',', absl::SkipEmpty());
  fetch.log = [&out](const std::string& line) { out << line << std::endl; };
  fetch.is_stopped = [interrupt_fd] {
    return WaitForActivity({}, interrupt_fd, absl::ZeroDuration());
  };
  const std::string& path = launch.data.empty() ? options.job.data().path() : launch.data;
  absl::StatusOr<std::string> directory =
      DownloadForJob(options.job.data().source(), path, std::move(fetch));
  if (!directory.ok()) return directory.status();
  launch.data = *std::move(directory);
  launch.download = false;
  launch.mirrors.clear();
  return absl::OkStatus();
}

// Becomes the worker program, which reads the job from a file in memory and tries one batch of it.
// Returns only where that fails: an exit code.
int BecomeDryRun(const ClusterRun::Options& options, std::ostream& error) {
  const LaunchOptions& launch = options.launch;
  std::string job;
  google::protobuf::TextFormat::PrintToString(options.job, &job);
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
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  error << "psctl: cannot start " << words[0] << ": " << std::strerror(errno) << std::endl;
  return static_cast<int>(ExitCode::kFailed);
}

}  // namespace

std::string RunFlagFor(absl::string_view field) {
  const std::string set = SetFlagFor(field);
  for (const ShortForm& form : kShortForms) {
    if (set == absl::StrCat("--set=", form.field, "=VALUE")) return absl::StrCat("--", form.flag);
  }
  return set;
}

std::vector<FlagSpec> RunFlags() {
  std::vector<FlagSpec> flags = {
      {"job", "FILE",
       "The job: a file in text format, as those in deploy/jobs, in YAML (.yaml) or in JSON "
       "(.json), or the name of one that psctl "
       "brings along: digits, mnist, text. Required.",
       false, 0, "", BuiltInJobNames()},
      {"set", "PATH=VALUE", "Overrides one field of the job: --set=training.clip_norm=1.", true},
      {"epochs", "N", "Short for --set=training.epochs=N."},
      {"batch_size", "N", "Short for --set=training.batch_size=N."},
      {"optimizer", "NAME", "Short for --set=optimizer.kind=NAME, as adam.", false, 0, "",
       OptimizerNames()},
      {"lr", "RATE", "Short for --set=optimizer.learning_rate=RATE."},
      {"seed", "N", "Short for --set=seed=N."},
      {"servers", "N", "Parameter servers on this machine. Default 2."},
      {"workers", "N", "Workers on this machine; sets the job's `workers`. Default: the job's."},
      {"data", "PATH", "Directory or file of the training data, in place of the job's data.path."},
      {"download", "",
       "Fetches MNIST first, where it is not there yet: into --data or the job's data.path, else "
       "into this machine's cache (TORCHPS_CACHE, XDG_CACHE_HOME or ~/.cache/torchps). With "
       "--hosts each machine fetches its own."},
      {"mirrors", "URL,...",
       "With --download: directories of the web that hold its four files, instead of public ones.",
       false, 0, "download"},
      {"gpus", "N",
       "On each worker's machine one worker that computes on its first N GPUs, with a replica of "
       "the model on each, and pushes once for all of them.",
       false, 'g'},
      {"gpus_per_worker", "M",
       "With --gpus: a worker for every M of them; 1: N workers with a GPU each. Default: N."},
      {"stages", "N",
       "Each worker is N processes on this machine, each of which holds a stage of the model and "
       "no more: an mlp, a transformer, or a torchps::Stages of your program. In a hosts file: "
       "'worker HOST:PORT,HOST:PORT'."},
      {"device",
       "DEVICE",
       "cpu, cuda or cuda:N, passed to every worker. Of several GPUs, 'cuda' gives each worker the "
       "one of its slot. Several, with a comma between, have a replica of the model each: cpu,cpu "
       "or cuda:0,cuda:1; 'auto': all GPUs of the machine, else its CPU. Default cpu.",
       false,
       0,
       "",
       {"cpu", "cuda", "auto"}},
      {"threads", "N",
       "Computing threads of each worker. Default: this machine's cores divided by the workers."},
      {"loader_threads", "N",
       "Threads of each worker that prepare its batches ahead of its computing. Default 0."},
      {"patience", "DURATION",
       "How long a worker goes on asking a server that does not answer, as 60s or 5m."},
      {"dir", "DIR",
       "The run's folder: model, report, logs, and what servers keep to come back; with --hosts "
       "what each server keeps on its machine. Default: runs/NAME-TIME on this machine."},
      {"resume", "", "Goes on with the job whose state is in --dir."},
      {"dry_run", "",
       "Tries one batch of training and one of evaluation on this machine, and ends: no server "
       "starts, and no folder is made."},
      {"restarts", "N",
       "How often within ten minutes a server or worker that dies is started again; 0: never. "
       "Default 5."},
      {"target", "METRIC:VALUE",
       "Notes when what is learnt first reaches VALUE of METRIC, as accuracy:0.98 or loss:2.5, in "
       "the report and on a line: seconds since the start, samples used, pushes. A process of its "
       "own measures it (docs/operations.md says what that costs).",
       true},
      {"target_every", "DURATION",
       "How often that process measures; without --target it measures all the same, into "
       "logs/evaluator.log. Default with --target: 5s."},
      {"report", "FILE",
       "Writes the report as JSON (docs/report.md) when the job has ended. Default: report.json in "
       "the run's folder."},
      {"server_binary", "PATH", "The server program. Default: ps_server beside psctl."},
      {"worker_binary", "PATH",
       "The worker program, for instance your own with its own model. Default: ps_worker beside "
       "psctl."},
      {"hosts", "FILE",
       "Runs the parts on other machines through ssh. Lines are 'server HOST[:PORT]' and "
       "'worker HOST [slots=N | gpus=0,1]', or 'worker HOST:PORT,HOST:PORT [gpus=0,1]' with a "
       "stage of the model on each; # begins a comment."},
      {"ssh", "COMMAND", "The ssh command with its options. Default 'ssh -o BatchMode=yes'."},
      {"remote_binary_dir", "PATH",
       "Where ps_server and ps_worker lie on the other machines. Default: as on this one."},
      {"certs", "DIR",
       "Speaks TLS everywhere: the directory that 'psctl certs' made, on every machine of the "
       "run."},
      {"insecure", "",
       "Lets servers listen beyond this machine's loopback without encryption. Only in a network "
       "that is yours alone."},
  };
  for (FlagSpec& flag : HandicapFlags()) flags.push_back(std::move(flag));
  return flags;
}

absl::StatusOr<ClusterRun::Options> PlanRun(const FlagValues& flags,
                                            const std::string& program_directory) {
  if (!flags.Has("job")) {
    return absl::InvalidArgumentError(
        "'psctl run' needs --job=FILE, or the name of a job: digits, mnist, text");
  }
  ClusterRun::Options options;
  LaunchOptions& launch = options.launch;
  launch.job_file = flags.Get("job");
  launch.set = Assignments(flags);
  launch.data = flags.Get("data");
  launch.download = flags.Has("download");
  launch.mirrors = flags.Get("mirrors");
  launch.device = flags.Get("device", flags.Has("gpus") ? "cuda" : "");
  launch.patience = flags.Get("patience");
  launch.certs = flags.Get("certs");
  launch.insecure = flags.Has("insecure");
  options.report_file = flags.Get("report");
  options.flags_again = FlagsAgain(flags);

  absl::StatusOr<JobSpec> job = ReadJob(launch.job_file, launch.set);
  if (!job.ok()) return job.status();
  absl::StatusOr<Hosts> hosts = PlanHosts(flags, *job);
  if (!hosts.ok()) return hosts.status();
  const int workers = static_cast<int>(hosts->workers.size());
  if (workers != job->workers()) {
    // Read again: defaults and limits may depend on the number of workers.
    launch.set.push_back(absl::StrCat("workers=", workers));
    job = ReadJob(launch.job_file, launch.set);
    if (!job.ok()) return job.status();
  }
  options.job = *std::move(job);
  options.hosts = *std::move(hosts);
  if (const absl::Status status = CheckHosts(flags, options.hosts); !status.ok()) return status;
  if (flags.Has("hosts")) {
    launch.elsewhere = true;
    launch.job_text = JobText(launch.job_file);
    if (flags.Has("ssh")) launch.ssh = absl::StrSplit(flags.Get("ssh"), ' ', absl::SkipEmpty());
  }

  size_t processes = 0;
  for (const Place& worker : options.hosts.workers) {
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
      flags.Integer("restarts", options.restarts.most, 0, 1000000);
  if (!restarts.ok()) return restarts.status();
  options.restarts.most = static_cast<int>(*restarts);
  if (const absl::Status status = PlanDirectory(flags, launch); !status.ok()) return status;
  absl::StatusOr<std::map<int, std::vector<std::string>>> handicaps =
      ParseHandicaps(flags, workers);
  if (!handicaps.ok()) return handicaps.status();
  launch.handicaps = *std::move(handicaps);
  if (const absl::Status status = PlanTargets(flags, options); !status.ok()) return status;
  if (flags.Has("dry_run") && (flags.Has("hosts") || flags.Has("stages"))) {
    return absl::InvalidArgumentError(
        "--dry_run tries the whole model on this machine; leave --hosts and --stages out");
  }
  if (const absl::Status status = CheckReportFile(options.report_file); !status.ok()) {
    return status;
  }
  if (const absl::Status status = FindPrograms(flags, program_directory, launch); !status.ok()) {
    return status;
  }
  if (const absl::Status status = CheckNames(launch, options.job, options.targets); !status.ok())
    return status;
  return options;
}

int RunInDirectory(ClusterRun::Options options, std::ostream& out, std::ostream& error,
                   const Clock& clock, int interrupt_fd, ClusterRun::OnReport on_report) {
  const absl::StatusOr<std::shared_ptr<CertificateFiles>> certificates =
      OpenCertificates(options.launch.certs, Role::kOperator, [](const std::string&) {});
  if (!certificates.ok()) {
    error << "psctl: " << certificates.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(certificates.status()));
  }
  if (const absl::Status fetched = Download(options, interrupt_fd, out); !fetched.ok()) {
    error << "psctl: " << fetched.message() << std::endl;
    return static_cast<int>(ExitCodeFor(fetched));
  }
  const absl::Time began = absl::Now();
  const bool is_new = options.launch.elsewhere || options.launch.dir.empty();
  std::unique_ptr<FileLock> lock;
  const absl::StatusOr<std::string> dir = OpenRunDirectory(options, began, lock);
  if (!dir.ok()) {
    error << "psctl: " << dir.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(dir.status()));
  }
  RunRecord record = RecordOf(options, *dir);
  if (const absl::Status kept = WriteRunRecord(*dir, record); !kept.ok()) {
    error << "psctl: " << kept.message() << std::endl;
    return static_cast<int>(ExitCodeFor(kept));
  }
  options.on_servers = [&](const std::vector<std::string>& addresses) {
    record.servers = addresses;
    WriteRunRecord(*dir, record).IgnoreError();
  };
  // The first server keeps the model, too.
  LaunchOptions launch = options.launch;
  launch.dir = *dir;
  const std::string model_dir = ServerDirectory(launch, 0);
  const std::string again = options.flags_again;
  bool untrained = false;
  options.on_report = [&](const Report& report) {
    untrained = !launch.resume && !launch.elsewhere && IsUntrained(report);
    if (on_report) on_report(report);
  };
  bool began_to_learn = false;
  if (is_new) options.on_accepted = [&began_to_learn] { began_to_learn = true; };
  // The last checkpoint takes its time.
  if (options.launch.keeps_state()) options.stop_grace = absl::Seconds(30);
  const auto connect = [&](std::vector<std::string> addresses) {
    return ConnectToCluster(std::move(addresses), *certificates);
  };
  ClusterRun run(std::move(options), connect, out, error, clock, interrupt_fd);
  const int code = run.Run();
  EndRecord(run.outcome(), code, record);
  WriteRunRecord(*dir, record).IgnoreError();
  if (code != 0 && untrained) RemoveState(*dir);
  out << DescribeModel(model_dir, began) << std::flush;
  if (code == 0) return code;
  error << HowToGoOn(*dir, again) << std::flush;
  // Of a wrong flag or file the last sentence has said all there is to say.
  const bool told = code == int(ExitCode::kUsage) || code == int(ExitCode::kData);
  if (is_new && !began_to_learn) RemoveUnusedRun(*dir, told);
  return code;
}

int RunCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  // First of all, so that every thread gRPC starts leaves these signals to us.
  const Interrupt interrupt;
  absl::StatusOr<ClusterRun::Options> options = PlanRun(flags, OwnDirectory());
  if (!options.ok()) {
    error << "psctl: " << options.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(options.status()));
  }
  if (const std::string warning = MomentumWarning(options->job); !warning.empty()) {
    error << "psctl: warning: " << warning << std::endl;
  } else if (const std::string hint = RateHint(options->job); !hint.empty()) {
    error << "psctl: hint: " << hint << std::endl;
  }
  if (options->job.training().clip_norm() > 0 && options->job.workers() > 1) {
    error << "psctl: hint: training.clip_norm clips each worker's part of a batch, so "
          << options->job.workers() << " workers learn something else than one" << std::endl;
  }
  if (flags.Has("dry_run")) {
    const absl::Status fetched = Download(*options, interrupt.fd(), out);
    if (fetched.ok()) return BecomeDryRun(*options, error);
    error << "psctl: " << fetched.message() << std::endl;
    return static_cast<int>(ExitCodeFor(fetched));
  }
  options->view = ProgressView::OfTerminal();
  const SteadyClock clock;
  return RunInDirectory(*std::move(options), out, error, clock, interrupt.fd());
}

}  // namespace torchps
