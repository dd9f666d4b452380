#include "program/worker_program.h"

#include <dlfcn.h>
#include <google/protobuf/text_format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/calls/address_book.h"
#include "common/clock.h"
#include "common/process/command_line.h"
#include "common/process/exit_codes.h"
#include "common/process/open_files.h"
#include "common/process/stop_signal.h"
#include "data/download/mnist_download.h"
#include "job/job_file.h"
#include "job/job_override.h"
#include "job/job_spec.h"
#include "job/momentum.h"
#include "program/in_process_cluster.h"
#include "program/local_outcome.h"
#include "rpc/grpc_process.h"
#include "rpc/server_address.h"
#include "security/credentials.h"
#include "storage/run_folder.h"
#include "torch/utils.h"
#include "worker/device.h"
#include "worker/loop/handicap.h"
#include "worker/precision/device_precision.h"

ABSL_FLAG(std::vector<std::string>, servers, {},
          "all servers of the job, comma-separated, in the same order for every worker: HOST:PORT, "
          "or file:PATH for what ps_server --address_file=PATH writes");
ABSL_FLAG(
    std::string, certs, "",
    "directory with ca.pem, cert.pem and key.pem of a worker ('psctl certs' makes them): speak "
    "TLS with the servers, and only with those");
ABSL_FLAG(std::string, job, "",
          "job file; its fields are described in proto/job.proto. Without one, --set says it all");
ABSL_FLAG(std::string, set, "",
          "path.to.field=value: sets one field of the job; may be given many times");
ABSL_FLAG(std::string, data, "", "where the data lies on this machine, instead of data.path");
ABSL_FLAG(
    std::string, device, "cpu",
    "cpu, cuda or cuda:INDEX; of several GPUs 'cuda' is the one of this worker's slot: number "
    "slot modulo the GPUs that are seen; with --stage one for each process of a machine. Or "
    "several, as cuda:0,cuda:1 or cpu,cpu, cuda:all, or auto, all GPUs or else the CPU: each has a "
    "replica of the model, which push once together, or of a "
    "module in stages one each");
ABSL_FLAG(int, gpu_number, -1,
          "with --device=cuda: the GPU with this number, modulo the GPUs that are seen, instead of "
          "the one of the slot; for launchers");
ABSL_FLAG(
    int, micro_batches, 0,
    "with a --device for each stage: parts of a pass with which the stages compute at once; 0 "
    "takes two for each stage");
ABSL_FLAG(int, stage, -1,
          "of a model that several processes hold, the stage that this one holds, from 0; the "
          "others are started with the same --replica");
ABSL_FLAG(std::vector<std::string>, replica, {},
          "with --stage: where each of those processes listens, HOST:PORT, in the order of their "
          "stages; this one on its own");
ABSL_FLAG(bool, devices, false, "print the devices that this program can compute on, and end");
ABSL_FLAG(int, slot, -1, "the slot to take; -1 takes the lowest free one");
ABSL_FLAG(bool, predecessor_died, false,
          "with --slot: the process that had the slot is dead, so it is taken over at once instead "
          "of when its lease has run out; for launchers");
ABSL_FLAG(double, slow, 1, "computing takes so many times as long, to see a straggler");
ABSL_FLAG(double, pace, 0,
          "milliseconds that a step takes at the least, for its part of training.batch_size * "
          "accumulate samples; --slow counts from there");
ABSL_FLAG(std::string, pause, "",
          "FOR:EVERY: stands still for FOR seconds once in EVERY seconds, within a step");
ABSL_FLAG(int, threads, 1, "threads that torch computes with, divided among several devices");
ABSL_FLAG(int, loader_threads, 0,
          "threads that prepare batches ahead, for each device; the dataset and augment are then "
          "called by them");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(60), "how long a server may be silent");
ABSL_FLAG(bool, local, false, "train alone, with servers inside this process and no network");
ABSL_FLAG(int, local_servers, 2, "with --local: how many servers");
ABSL_FLAG(std::string, dir, "",
          "with --local: the run's folder, for its model and checkpoints; by default "
          "runs/NAME-TIME");
ABSL_FLAG(bool, resume, false, "with --local: go on with the job in --dir");
ABSL_FLAG(std::string, evaluate, "",
          "measure this model on the job's test set, and end: a .safetensors or .pt file, or a "
          "run's folder");
ABSL_FLAG(absl::Duration, evaluate_every, absl::ZeroDuration(),
          "with --servers: train nothing and hold no slot, but measure the running job's values on "
          "its test set so often, until it ends; the job is the servers', with --set and --data on "
          "top");
ABSL_FLAG(std::string, predict, "",
          "write what this model answers to each sample of the job's test set, and end");
ABSL_FLAG(bool, on_training_data, false,
          "with --evaluate, --evaluate_every or --predict: take the training samples instead");
ABSL_FLAG(std::string, out, "",
          "with --evaluate, --evaluate_every or --predict: the file to write");
ABSL_FLAG(bool, json, false,
          "with --evaluate, --evaluate_every or --predict: write JSON instead of text or CSV");
ABSL_FLAG(
    bool, download, false,
    "fetch MNIST first, where it is not there yet, into the directory of --data or data.path, "
    "or without one into this machine's cache (TORCHPS_CACHE or ~/.cache/torchps)");
ABSL_FLAG(std::vector<std::string>, mirrors, {},
          "with --download: URLs of directories that hold its four files, instead of public ones");
ABSL_FLAG(double, progress_seconds, 1, "how often a line of progress is printed");
ABSL_FLAG(bool, exit_with_parent, false,
          "stop when standard input ends or the parent process dies: for launchers");

namespace torchps {
namespace {

// How long the end of --local waits for what it trained to be on the disk.
constexpr absl::Duration kLastCheckpoint = absl::Minutes(1);

// What measures a running job gets a tenth of a core where a worker wants the rest.
constexpr int kWatchNice = 10;

// absl keeps the last of several --set only, so they are taken out of the command line first.
std::vector<std::string> TakeOverrides(std::vector<char*>* arguments) {
  std::vector<std::string> overrides;
  std::vector<char*> rest;
  for (size_t i = 0; i < arguments->size(); ++i) {
    const std::string argument = (*arguments)[i];
    const bool is_set = argument == "--set" || argument == "-set";
    if (is_set && i + 1 < arguments->size()) {
      overrides.push_back((*arguments)[++i]);
    } else if (absl::StartsWith(argument, "--set=") || absl::StartsWith(argument, "-set=")) {
      overrides.push_back(argument.substr(argument.find('=') + 1));
    } else {
      rest.push_back((*arguments)[i]);
    }
  }
  *arguments = std::move(rest);
  return overrides;
}

// What --set and --data say of the job.
absl::Status ApplyFlags(const std::vector<std::string>& overrides, JobSpec* job) {
  for (const std::string& assignment : overrides) {
    if (absl::Status status = ApplyOverride(job, assignment); !status.ok()) return status;
  }
  if (const std::string data = absl::GetFlag(FLAGS_data); !data.empty()) {
    job->mutable_data()->set_path(data);
  }
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> ReadJob(const std::vector<std::string>& overrides, bool looks) {
  const std::string path = absl::GetFlag(FLAGS_job);
  absl::StatusOr<JobSpec> job =
      path.empty() ? absl::StatusOr<JobSpec>(JobSpec()) : ParseJobFile(path);
  if (!job.ok()) return job.status();
  if (absl::Status status = ApplyFlags(overrides, &*job); !status.ok()) return status;
  // No other process can reach the servers.
  if (absl::GetFlag(FLAGS_local)) job->set_workers(1);
  // What only looks at a model learns nothing, so it need not say how fast.
  if (looks && job->optimizer().learning_rate() == 0) {
    job->mutable_optimizer()->set_learning_rate(1);
  }
  return NormalizeJobSpec(*std::move(job));
}

absl::StatusOr<Handicap::Options> FlaggedHandicap() {
  Handicap::Options handicap;
  handicap.slow = absl::GetFlag(FLAGS_slow);
  handicap.pace = absl::Milliseconds(absl::GetFlag(FLAGS_pace));
  absl::Status status = Handicap::ParsePause(absl::GetFlag(FLAGS_pause), &handicap);
  if (status.ok()) status = Handicap::Check(handicap);
  if (!status.ok()) return status;
  return handicap;
}

// Of all ways to run it: a FlaggedWorker is made of these.
absl::Status CheckWorkerFlags() {
  if (absl::GetFlag(FLAGS_threads) < 1) return absl::InvalidArgumentError("--threads is below 1");
  return FlaggedHandicap().status();
}

absl::Status CheckFlags() {
  const bool local = absl::GetFlag(FLAGS_local);
  if (absl::GetFlag(FLAGS_servers).empty() != local) {
    return absl::InvalidArgumentError(
        "say one of --servers=HOST:PORT,... to join a job, --local to train alone, "
        "--evaluate=MODEL and --predict=MODEL");
  }
  if (!local && (!absl::GetFlag(FLAGS_dir).empty() || absl::GetFlag(FLAGS_resume))) {
    return absl::InvalidArgumentError(
        "--dir and --resume belong to --local; other servers have a --dir of their own");
  }
  if (local && absl::GetFlag(FLAGS_resume) && absl::GetFlag(FLAGS_dir).empty()) {
    return absl::InvalidArgumentError("--resume needs --dir=DIR, where the job's state is");
  }
  if (local && absl::GetFlag(FLAGS_local_servers) < 1) {
    return absl::InvalidArgumentError("--local_servers is below 1");
  }
  if (absl::GetFlag(FLAGS_predecessor_died) && absl::GetFlag(FLAGS_slot) < 0) {
    return absl::InvalidArgumentError("--predecessor_died needs --slot=N, whose process has died");
  }
  if (absl::Status status = CheckWorkerFlags(); !status.ok()) return status;
  if ((absl::GetFlag(FLAGS_stage) >= 0) != !absl::GetFlag(FLAGS_replica).empty()) {
    return absl::InvalidArgumentError(
        "--stage and --replica go together: which stage of the model this process holds, and "
        "where it and those with the others listen");
  }
  if (absl::GetFlag(FLAGS_stage) >= 0 && absl::GetFlag(FLAGS_local)) {
    return absl::InvalidArgumentError(
        "--stage needs servers that the other processes reach, too: --servers in place of --local");
  }
  if (absl::GetFlag(FLAGS_micro_batches) < 0) {
    return absl::InvalidArgumentError("--micro_batches is below 0");
  }
  if (const int loaders = absl::GetFlag(FLAGS_loader_threads); loaders < 0 || loaders > 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("--loader_threads is ", loaders, "; expected 0 to 256"));
  }
  return absl::OkStatus();
}

absl::Status CheckLookFlags(const WorkerProgram& work) {
  if (work.look == nullptr) {
    return absl::InvalidArgumentError(
        "this program has a loop of its own, so it cannot --evaluate or --predict; "
        "torchps::LoadState reads its models");
  }
  const bool both = !absl::GetFlag(FLAGS_evaluate).empty() && !absl::GetFlag(FLAGS_predict).empty();
  if (both || absl::GetFlag(FLAGS_local) || !absl::GetFlag(FLAGS_servers).empty()) {
    return absl::InvalidArgumentError(
        "say one of --servers=HOST:PORT,..., --local, --evaluate=MODEL and --predict=MODEL");
  }
  return CheckWorkerFlags();
}

bool Watches() { return absl::GetFlag(FLAGS_evaluate_every) != absl::ZeroDuration(); }

absl::Status CheckWatchFlags(const WorkerProgram& work) {
  if (work.watch == nullptr) {
    return absl::InvalidArgumentError(
        "this program has a loop of its own, so it cannot --evaluate_every");
  }
  if (absl::GetFlag(FLAGS_evaluate_every) < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("--evaluate_every is below 0; expected a duration, as 5s");
  }
  if (absl::GetFlag(FLAGS_servers).empty() || absl::GetFlag(FLAGS_local)) {
    return absl::InvalidArgumentError(
        "--evaluate_every needs --servers=HOST:PORT,..., all servers of the running job");
  }
  if (!absl::GetFlag(FLAGS_job).empty()) {
    return absl::InvalidArgumentError(
        "--evaluate_every takes the job from its servers; leave --job out");
  }
  if (!absl::GetFlag(FLAGS_evaluate).empty() || !absl::GetFlag(FLAGS_predict).empty()) {
    return absl::InvalidArgumentError(
        "say one of --evaluate_every, --evaluate=MODEL and --predict=MODEL");
  }
  return CheckWorkerFlags();
}

// Torch's own threads, and those of the BLAS library below it, which torch does not tell.
void SetTorchThreads(int threads) {
  at::set_num_threads(threads);
  using SetThreads = void (*)(int);
  if (void* const found = dlsym(RTLD_DEFAULT, "openblas_set_num_threads"); found != nullptr) {
    reinterpret_cast<SetThreads>(found)(threads);
  }
}

void PrintLine(std::FILE* file, const std::string& line) {
  std::fprintf(file, "%s\n", line.c_str());
  std::fflush(file);
}

// What --download asks for; the job then says where it lies.
absl::Status Download(const std::string& program, JobSpec& job) {
  if (!absl::GetFlag(FLAGS_download)) return absl::OkStatus();
  DownloadOptions options;
  options.mirrors = absl::GetFlag(FLAGS_mirrors);
  options.log = [&program](const std::string& line) {
    PrintLine(stderr, absl::StrCat(program, ": ", line));
  };
  absl::StatusOr<std::string> directory =
      DownloadForJob(job.data().source(), job.data().path(), std::move(options));
  if (!directory.ok()) return directory.status();
  job.mutable_data()->set_path(*std::move(directory));
  return absl::OkStatus();
}

// What `psctl doctor` asks for.
void PrintDevices(const std::string& program) {
  PrintLine(stdout,
            absl::StrCat("torchps_worker devices seen=", absl::StrJoin(SeenDevices(), ",")));
  if (const auto gpu = FindDevice("cuda"); !gpu.ok()) {
    PrintLine(stderr, absl::StrCat(program, ": ", gpu.status().message()));
  }
}

// The servers of --local, and the folder that they keep the run in.
struct LocalRun {
  std::string dir;
  std::unique_ptr<InProcessCluster> cluster;
};

// The job beside its model, for `psctl evaluate` and whoever comes later.
absl::Status KeepJobFile(const std::string& dir, const JobSpec& job) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  const std::string path = absl::StrCat(dir, "/job.textproto");
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<LocalRun> StartLocalRun(const JobSpec& job, const Clock& clock) {
  LocalRun run;
  run.dir = absl::GetFlag(FLAGS_dir);
  if (run.dir.empty()) {
    absl::StatusOr<std::string> made = MakeRunFolder(job.name(), absl::Now());
    if (!made.ok()) return made.status();
    run.dir = *std::move(made);
  }
  const bool resume = absl::GetFlag(FLAGS_resume);
  if (!resume && access(absl::StrCat(run.dir, "/coordinator.state").c_str(), F_OK) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dir=", run.dir, " holds a job; --resume goes on with it, or name an empty directory"));
  }
  if (absl::Status kept = KeepJobFile(run.dir, job); !kept.ok()) return kept;
  absl::StatusOr<std::unique_ptr<InProcessCluster>> started =
      InProcessCluster::Start(absl::GetFlag(FLAGS_local_servers), &clock, run.dir, resume);
  if (!started.ok()) return started.status();
  run.cluster = *std::move(started);
  return run;
}

// Ends it, and says what it came to and where the model lies.
void EndLocalRun(LocalRun run, const std::string& program) {
  const absl::optional<JobStatus> job = AskForOutcome(run.cluster->endpoints().front());
  if (job.has_value() && job->phase() >= JobStatus::RUNNING) PrintLine(stdout, OutcomeText(*job));
  const absl::Status kept = run.cluster->server(0).TakeLastCheckpoint(kLastCheckpoint);
  if (!kept.ok()) {
    PrintLine(stderr, absl::StrCat(program, ": no last checkpoint was taken: ", kept.message()));
  }
  run.cluster.reset();
  const std::string model = absl::StrCat(run.dir, "/model.safetensors");
  if (access(model.c_str(), F_OK) != 0) return;
  PrintLine(stdout, absl::StrCat("model: ", model));
  PrintLine(stdout,
            absl::StrCat("load it: safetensors.torch.load_file(\"", model,
                         "\") in Python, torchps::LoadState(module, \"", model, "\") in C++"));
}

absl::StatusOr<std::vector<ServerEndpoint>> FlaggedServers(
    const std::function<void(const std::string& line)>& log) {
  const absl::StatusOr<std::shared_ptr<CertificateFiles>> certificates =
      OpenCertificates(absl::GetFlag(FLAGS_certs), Role::kWorker, log);
  if (!certificates.ok()) return certificates.status();
  AddressBook::Options book;
  book.certificates = *certificates;
  for (const std::string& text : absl::GetFlag(FLAGS_servers)) {
    const absl::StatusOr<AddressSource> source = AddressSource::Parse(text);
    if (!source.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--servers: ", source.status().message()));
    }
    book.servers.push_back(*source);
  }
  return EndpointsOf(std::make_shared<AddressBook>(std::move(book)));
}

// One worker as the flags say it: where it computes, and what it talks to. On the thread that
// trains.
class FlaggedWorker {
 public:
  FlaggedWorker(const JobSpec& job, const std::string& program, StopLatch* stop)
      : job_(job), program_(program) {
    options_.job = job;
    options_.clock = &clock_;
    options_.stop = stop;
    options_.slot = absl::GetFlag(FLAGS_slot);
    options_.predecessor_died = absl::GetFlag(FLAGS_predecessor_died);
    options_.handicap = *FlaggedHandicap();
    options_.loader_threads = absl::GetFlag(FLAGS_loader_threads);
    options_.micro_batches = absl::GetFlag(FLAGS_micro_batches);
    options_.stage = absl::GetFlag(FLAGS_stage);
    options_.replica = absl::GetFlag(FLAGS_replica);
    options_.patience = absl::GetFlag(FLAGS_patience);
    options_.progress_interval = absl::Seconds(absl::GetFlag(FLAGS_progress_seconds));
    options_.print = [](const std::string& line) { PrintLine(stdout, line); };
    options_.log = [program](const std::string& line) {
      PrintLine(stderr, absl::StrCat(program, ": ", line));
    };
  }

  // Before anything of the user's runs.
  absl::Status Prepare() {
    const absl::StatusOr<DeviceList> devices = FindDevices(absl::GetFlag(FLAGS_device));
    if (!devices.ok()) return devices.status();
    if (options_.stage >= 0 && devices->size() > 1) {
      return absl::InvalidArgumentError("a process with --stage computes on one --device");
    }
    const int told = absl::GetFlag(FLAGS_gpu_number);
    options_.device = DeviceOfSlot(
        devices->front(),
        told >= 0 ? told : NumberOfMember(options_.slot, options_.stage, options_.replica));
    options_.further_devices.assign(devices->begin() + 1, devices->end());
    // What the factory makes on torch::kCUDA is to be there, too.
    if (absl::Status status = UseDevice(options_.device); !status.ok()) return status;
    const int replicas = static_cast<int>(devices->size());
    SetTorchThreads(std::max(1, absl::GetFlag(FLAGS_threads) / replicas));
    SetTf32(job_.training().precision());
    torch::manual_seed(job_.seed());
    return absl::OkStatus();
  }

  absl::StatusOr<WorkerOptions> Connect() {
    if (absl::GetFlag(FLAGS_local)) {
      absl::StatusOr<LocalRun> started = StartLocalRun(job_, clock_);
      if (!started.ok()) return started.status();
      local_ = *std::move(started);
      options_.servers = local_->cluster->endpoints();
      return options_;
    }
    // A launcher has said it once for all workers.
    const std::string warning = MomentumWarning(job_);
    if (!warning.empty() && !absl::GetFlag(FLAGS_exit_with_parent)) {
      options_.log(absl::StrCat("warning: ", warning));
    }
    absl::StatusOr<std::vector<ServerEndpoint>> servers = FlaggedServers(options_.log);
    if (!servers.ok()) return servers.status();
    options_.servers = *std::move(servers);
    return options_;
  }

  // REQUIRES: Prepare() was OK.
  torch::Device device() const { return options_.device; }

  ModelLook Look() const {
    ModelLook look;
    look.model = absl::GetFlag(FLAGS_evaluate);
    if (look.model.empty()) {
      look.what = ModelLook::kPredict;
      look.model = absl::GetFlag(FLAGS_predict);
    }
    look.device = options_.device;
    look.precision = job_.training().precision();
    look.on_training_data = absl::GetFlag(FLAGS_on_training_data);
    look.json = absl::GetFlag(FLAGS_json);
    look.out = absl::GetFlag(FLAGS_out);
    return look;
  }

  void End() {
    if (local_.has_value()) EndLocalRun(*std::move(local_), program_);
  }

 private:
  const JobSpec& job_;
  const std::string& program_;
  const SteadyClock clock_;
  WorkerOptions options_;
  absl::optional<LocalRun> local_;
};

// Measures a running job, as --evaluate_every says.
absl::Status WatchAsFlagged(const WorkerProgram& work, const std::string& program,
                            const std::vector<std::string>& overrides, StopLatch* stop) {
  const SteadyClock clock;
  WatchOptions options;
  options.patience = absl::GetFlag(FLAGS_patience);
  options.log = [&program](const std::string& line) {
    PrintLine(stderr, absl::StrCat(program, ": ", line));
  };
  options.clock = &clock;
  options.stop = stop;
  options.every = absl::GetFlag(FLAGS_evaluate_every);
  options.on_training_data = absl::GetFlag(FLAGS_on_training_data);
  const bool json = absl::GetFlag(FLAGS_json);
  const std::string path = absl::GetFlag(FLAGS_out);
  std::FILE* const out = path.empty() ? stdout : std::fopen(path.c_str(), "w");
  if (out == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write --out=", path, ": ", std::strerror(errno)));
  }
  const auto close = absl::MakeCleanup([out] {
    if (out != stdout) std::fclose(out);
  });
  options.on_measured = [out, json, &path](const Measured& measured) {
    PrintLine(out, json ? MeasuredJson(measured) : MeasuredText(measured));
    if (std::ferror(out) == 0) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot write ", path.empty() ? "standard output" : path, ": ", std::strerror(errno)));
  };

  absl::StatusOr<std::vector<ServerEndpoint>> servers = FlaggedServers(options.log);
  if (!servers.ok()) return servers.status();
  options.servers = *std::move(servers);
  const absl::StatusOr<JobStatus> running = AwaitRunningJob(options);
  if (!running.ok()) return running.status();
  JobSpec job = running->job();
  absl::Status status = ApplyFlags(overrides, &job);
  // The test set is wanted here also where workers never look at it.
  job.mutable_training()->set_evaluate(true);
  if (status.ok()) status = Download(program, job);
  if (!status.ok()) return status;
  FlaggedWorker worker(job, program, stop);
  if (status = worker.Prepare(); !status.ok()) return status;
  options.device = worker.device();
  return work.watch(job, options);
}

// Trains, or looks at a model.
absl::Status WorkAsFlagged(const WorkerProgram& work, const std::string& program, JobSpec job,
                           bool looks, StopLatch* stop) {
  if (absl::Status status = Download(program, job); !status.ok()) return status;
  FlaggedWorker worker(job, program, stop);
  absl::Status result = worker.Prepare();
  if (result.ok() && looks) {
    result = work.look(job, worker.Look());
  } else if (result.ok()) {
    result = work.train(job, [&worker] { return worker.Connect(); });
  }
  worker.End();
  return result;
}

}  // namespace

int FlaggedStage() { return absl::GetFlag(FLAGS_stage); }

int RunWorkerProgram(int argc, char** argv, const WorkerProgram& work) {
  StopSignal signals;  // before any thread, so that all of them leave the signals to it
  RaiseOpenFileLimit();
  PrepareGrpcProcess();

  std::vector<char*> arguments(argv, argv + argc);
  const std::vector<std::string> overrides = TakeOverrides(&arguments);
  SetProgramHelp("a worker of torchps; see README.md");
  std::string program = argv[0];
  program = program.substr(program.rfind('/') + 1);
  const int count = static_cast<int>(arguments.size());
  if (const absl::Status flags = CheckCommandLine(count, arguments.data()); !flags.ok()) {
    PrintLine(stderr, absl::StrCat(program, ": ", flags.message()));
    return static_cast<int>(ExitCodeFor(flags));
  }
  absl::ParseCommandLine(count, arguments.data());
  if (absl::GetFlag(FLAGS_devices)) {
    PrintDevices(program);
    return static_cast<int>(ExitCode::kOk);
  }
  if (absl::GetFlag(FLAGS_exit_with_parent)) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signals.WatchStandardInput();
  }

  const bool looks =
      !absl::GetFlag(FLAGS_evaluate).empty() || !absl::GetFlag(FLAGS_predict).empty();
  const bool watches = Watches();
  absl::Status result = watches ? CheckWatchFlags(work)
                        : looks ? CheckLookFlags(work)
                                : CheckFlags();
  if (result.ok()) {
    absl::StatusOr<JobSpec> job;
    if (watches) {
      // What trains comes first, on a machine that it has for itself. All threads get it from this
      // one.
      setpriority(PRIO_PROCESS, 0, kWatchNice);
    } else {
      job = ReadJob(overrides, looks);
      result = job.status();
    }
    if (result.ok()) {
      StopLatch stop;
      std::thread trainer([&] {
        result = watches ? WatchAsFlagged(work, program, overrides, &stop)
                         : WorkAsFlagged(work, program, *std::move(job), looks, &stop);
        signals.Request("finished");
      });
      stop.Stop(signals.Wait());
      trainer.join();
      // Told to stop, it has: what it had in hand is given back, and its slot is free.
      if (absl::IsCancelled(result)) {
        PrintLine(stdout, absl::StrCat("torchps_worker stopped: ", stop.reason()));
        result = absl::OkStatus();
      }
    }
  }
  if (!result.ok()) PrintLine(stderr, absl::StrCat(program, ": ", result.message()));
  return static_cast<int>(ExitCodeFor(result));
}

}  // namespace torchps
