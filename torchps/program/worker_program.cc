#include "torchps/program/worker_program.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "grpcpp/version_info.h"
#include "torch/utils.h"
#include "torch/version.h"
#include "torchps/common/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/process/found_functions.h"
#include "torchps/common/process/process_limits.h"
#include "torchps/common/process/stop_signal.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/download_mnist.h"
#include "torchps/data/preprocessing.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/program/task_setup.h"
#include "torchps/program/worker_flags.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/worker/device.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

// The nice value of a program that measures a running job. If workers need the CPU, the program
// gets about a tenth of a core.
constexpr int kWatchNice = 10;

// Sets the thread count of torch and of the BLAS library, which torch does not set.
void SetTorchThreads(int threads) {
  at::set_num_threads(threads);
  void (*set_blas_threads)(int) = nullptr;
  FoundFunctions::InProcess("BLAS").Find("openblas_set_num_threads", &set_blas_threads);
  if (set_blas_threads != nullptr) set_blas_threads(threads);
}

void PrintLine(std::FILE* file, const std::string& line) {
  std::fprintf(file, "%s\n", line.c_str());
  std::fflush(file);
}

// Implements --download, and sets the data path in the job.
absl::Status Download(const std::string& program, const StopLatch& stop, JobSpec& job) {
  if (!absl::GetFlag(FLAGS_download)) return absl::OkStatus();
  DownloadOptions options;
  options.mirrors = absl::GetFlag(FLAGS_mirrors);
  options.log = [&program](const std::string& line) {
    PrintLine(stderr, absl::StrCat(program, ": ", line));
  };
  options.is_stopped = [&stop] { return stop.stopped(); };
  absl::StatusOr<std::string> directory =
      DownloadForJob(job.data().source(), job.data().path(), std::move(options));
  if (!directory.ok()) return directory.status();
  job.mutable_data()->set_path(*std::move(directory));
  return absl::OkStatus();
}

// Prints the devices for `psctl doctor`.
void PrintDevices(const std::string& program) {
  PrintLine(stdout,
            absl::StrCat("torchps_worker devices seen=", absl::StrJoin(SeenDevices(), ",")));
  if (const auto gpu = FindDevice("cuda"); !gpu.ok()) {
    PrintLine(stderr, absl::StrCat(program, ": ", gpu.status().message()));
  }
}

// Represents a worker as configured by the flags: the device and the servers. Used on the training
// thread.
class FlaggedWorker {
 public:
  FlaggedWorker(const JobSpec& job, const std::string& program, StopLatch* stop, TaskSetup* making)
      : job_(job), making_(*making) {
    options_.job = job;
    options_.clock = &clock_;
    options_.stop = stop;
    options_.slot = absl::GetFlag(FLAGS_slot);
    options_.dry_run = absl::GetFlag(FLAGS_dry_run);
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

  // Must run before the user's code, which creates the task.
  absl::Status Prepare() {
    if (absl::Status status = making_.Begin(); !status.ok()) return status;
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
    // Makes this device the current one, so that torch::kCUDA in the user's code means it.
    if (absl::Status status = UseDevice(options_.device); !status.ok()) return status;
    const int replicas = static_cast<int>(devices->size());
    SetTorchThreads(std::max(1, absl::GetFlag(FLAGS_threads) / replicas));
    SetTf32(job_.training().precision());
    torch::manual_seed(job_.seed());
    return absl::OkStatus();
  }

  absl::StatusOr<WorkerOptions> Connect() {
    if (absl::Status status = making_.End(); !status.ok()) return status;
    if (options_.dry_run) return options_;
    if (absl::GetFlag(FLAGS_local)) {
      LocalRun::Options run;
      run.servers = absl::GetFlag(FLAGS_local_servers);
      run.dir = absl::GetFlag(FLAGS_dir);
      run.resume = absl::GetFlag(FLAGS_resume);
      run.clock = &clock_;
      absl::StatusOr<LocalRun> started = LocalRun::Start(job_, std::move(run));
      if (!started.ok()) return started.status();
      local_ = *std::move(started);
      options_.servers = local_->endpoints();
      return options_;
    }
    // A launcher prints this warning once for all workers.
    const std::string warning = MomentumWarning(job_);
    if (!warning.empty() && !absl::GetFlag(FLAGS_exit_with_parent)) {
      options_.log(absl::StrCat("warning: ", warning));
    }
    absl::StatusOr<std::vector<ServerEndpoint>> servers = FlaggedServers(options_.log);
    if (!servers.ok()) return servers.status();
    options_.servers = *std::move(servers);
    return options_;
  }

  // REQUIRES: Prepare() returned OK.
  torch::Device device() const { return options_.device; }

  InferenceRequest Look() const {
    InferenceRequest look;
    look.model = absl::GetFlag(FLAGS_evaluate);
    if (const std::string model = absl::GetFlag(FLAGS_predict); !model.empty()) {
      look.what = InferenceRequest::kPredict;
      look.model = model;
    } else if (const std::string model = absl::GetFlag(FLAGS_generate); !model.empty()) {
      look.what = InferenceRequest::kGenerate;
      look.model = model;
      look.prompt = absl::GetFlag(FLAGS_generate_prompt);
      look.sampling = {absl::GetFlag(FLAGS_generate_length),
                       absl::GetFlag(FLAGS_generate_temperature),
                       absl::GetFlag(FLAGS_generate_top_k), absl::GetFlag(FLAGS_generate_seed)};
      look.has_token_ids = job_.data().source() == "tokens";
    }
    look.device = options_.device;
    look.precision = job_.training().precision();
    look.on_training_data = absl::GetFlag(FLAGS_on_training_data);
    look.json = absl::GetFlag(FLAGS_json);
    look.out = absl::GetFlag(FLAGS_out);
    look.stop = options_.stop;
    look.has_new_data =
        look.what == InferenceRequest::kPredict && !absl::GetFlag(FLAGS_data).empty();
    return look;
  }

  // Ends the run. `result` is the worker's outcome. Returns the error to report.
  absl::Status End(const absl::Status& result) {
    return local_.has_value() ? local_->End(result, options_.print, options_.log) : result;
  }

 private:
  const JobSpec& job_;
  TaskSetup& making_;
  const SteadyClock clock_;
  WorkerOptions options_;
  std::optional<LocalRun> local_;
};

// Measures a running job, as configured by --evaluate_every.
absl::Status WatchAsFlagged(const WorkerProgram& work, const std::string& program,
                            const std::vector<std::string>& overrides, StopLatch* stop,
                            TaskSetup* making) {
  const SteadyClock clock;
  LiveEvaluatorOptions options;
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
  // The evaluation needs a test set, even if the job trains without one.
  job.mutable_training()->set_evaluate(true);
  if (HasPreprocessing(job)) job.mutable_data()->set_use(EVALUATION);
  if (status.ok()) status = Download(program, *stop, job);
  if (!status.ok()) return status;
  FlaggedWorker worker(job, program, stop, making);
  if (status = worker.Prepare(); !status.ok()) return status;
  options.device = worker.device();
  return work.watch(job, options, [making] { return making->End(); });
}

// Returns the job of the servers that the worker joins.
absl::StatusOr<JobSpec> JobToJoin(const std::string& program, StopLatch* stop) {
  const SteadyClock clock;
  LiveEvaluatorOptions options;
  options.patience = absl::GetFlag(FLAGS_patience);
  options.log = [&program](const std::string& line) {
    PrintLine(stderr, absl::StrCat(program, ": ", line));
  };
  options.clock = &clock;
  options.stop = stop;
  absl::StatusOr<std::vector<ServerEndpoint>> servers = FlaggedServers(options.log);
  if (!servers.ok()) return servers.status();
  options.servers = *std::move(servers);
  absl::StatusOr<JobSpec> job = JobOfServers(options);
  if (!job.ok()) return job;
  if (absl::Status status = ApplyFlags(/*overrides=*/{}, &*job); !status.ok()) return status;
  return job;
}

// Adopts the preprocessing of the model that training begins with. Ignores unreadable files here;
// loading the values reports the error.
void TakePreprocessing(JobSpec* job) {
  const std::string& file = job->model().init_from();
  if (file.empty() || job->data().preprocessing_size() > 0) return;
  const absl::StatusOr<Preprocessing::Metadata> metadata = GetMetadata(file);
  if (!metadata.ok()) return;
  SetPreprocessing(*metadata, job);
}

// Trains, or runs inference on a model.
absl::Status WorkAsFlagged(const WorkerProgram& work, const std::string& program, JobSpec job,
                           bool is_inference, StopLatch* stop, TaskSetup* making) {
  if (absl::Status status = Download(program, *stop, job); !status.ok()) return status;
  if (!is_inference) TakePreprocessing(&job);
  FlaggedWorker worker(job, program, stop, making);
  absl::Status result = worker.Prepare();
  if (result.ok() && is_inference) {
    const InferenceRequest look = worker.Look();
    result = PrepareJob(look, &job);
    if (result.ok()) result = work.look(job, look, [making] { return making->End(); });
  } else if (result.ok()) {
    result = work.train(job, [&worker] { return worker.Connect(); });
  }
  return worker.End(result);
}

// Returns the exit code for the program's result and prints the result. `reason` is the reason for
// a stop, if there was one.
int Conclude(absl::Status result, const std::string& program, bool is_inference,
             const std::string& reason) {
  // A stopped worker succeeded: it returned the samples and freed the slot. A stopped inference
  // request failed, because it does not have a result.
  if (absl::IsCancelled(result) && !is_inference) {
    PrintLine(stdout, absl::StrCat("torchps_worker stopped: ", reason));
    result = absl::OkStatus();
  }
  if (!result.ok()) PrintLine(stderr, absl::StrCat(program, ": ", result.message()));
  return static_cast<int>(ExitCodeFor(result));
}

}  // namespace

int FlaggedStage() { return absl::GetFlag(FLAGS_stage); }

int RunWorkerProgram(int argc, char** argv, const WorkerProgram& work) {
  StopSignal signals;  // before any thread, so that the other threads block the signals
  RaiseOpenFileLimit();
  PrepareGrpcProcess();

  std::vector<char*> arguments(argv, argv + argc);
  const std::vector<std::string> overrides = TakeOverrides(&arguments);
  SetProgramHelp("a worker of torchps; see README.md",
                 "gRPC " GRPC_CPP_VERSION_STRING ", libtorch " TORCH_VERSION);
  std::string program = argv[0];
  program = program.substr(program.rfind('/') + 1);
  EndWellWhenTorchThrows(program.c_str());
  const int count = static_cast<int>(arguments.size());
  if (const absl::Status flags = CheckCommandLine(count, arguments.data(), &SetFlagFor);
      !flags.ok()) {
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

  const WorkerMode mode = FlaggedMode();
  const bool watches = mode == WorkerMode::kWatch;
  const bool is_inference = mode == WorkerMode::kLook;
  absl::Status result = watches        ? CheckWatchFlags(work.watch != nullptr)
                        : is_inference ? CheckInferenceFlags(work.look != nullptr)
                                       : CheckTrainFlags();
  if (result.ok()) {
    absl::StatusOr<JobSpec> job;
    const bool joins = JoinsAnyJob(overrides);
    if (watches) {
      // Gives training on this machine priority. All threads inherit the nice value.
      setpriority(PRIO_PROCESS, 0, kWatchNice);
    } else if (!joins) {
      job = FlaggedJob(overrides);
      result = job.status();
    }
    if (result.ok()) {
      StopLatch stop;
      TaskSetup making;
      std::thread trainer([&] {
        try {
          if (joins) {
            job = JobToJoin(program, &stop);
            result = job.status();
          }
          if (watches) {
            result = WatchAsFlagged(work, program, overrides, &stop, &making);
          } else if (result.ok()) {
            result = WorkAsFlagged(work, program, *std::move(job), is_inference, &stop, &making);
          }
        } catch (...) {
          // Calls of torch may throw, also because they run the module's code.
          result = ThrownError("the program");
        }
        making.End().IgnoreError();
        signals.Request("finished");
      });
      const std::string reason = signals.Wait();
      stop.Stop(reason);
      if (making.Stop(reason)) {
        // The training thread cannot be interrupted, and the objects it uses must not be destroyed.
        std::_Exit(Conclude(absl::CancelledError(reason), program, is_inference, reason));
      }
      trainer.join();
      return Conclude(std::move(result), program, is_inference, stop.reason());
    }
  }
  return Conclude(std::move(result), program, is_inference, /*reason=*/"");
}

}  // namespace torchps
