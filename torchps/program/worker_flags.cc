#include "torchps/program/worker_flags.h"

#include <cmath>
#include <memory>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "torchps/client/calls/address_resolver.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/security/credentials.h"
#include "torchps/transport/server_address.h"

ABSL_FLAG(std::vector<std::string>, servers, {},
          "all servers of the job, comma-separated, in the same order for every worker: HOST:PORT, "
          "or file:PATH for the file that ps_server --address_file=PATH writes");
ABSL_FLAG(
    std::string, certs, "",
    "directory with a worker's ca.pem, cert.pem and key.pem ('psctl certs' creates them): use "
    "TLS to the servers, and accept only servers with such certificates");
ABSL_FLAG(std::string, job, "",
          "job file; docs/job.md describes the fields. Without a job file, --set defines the job; "
          "with --servers and neither, the worker joins the servers' job");
ABSL_FLAG(std::string, set, "",
          "path.to.field=value: sets one field of the job; may be given many times");
ABSL_FLAG(std::string, data, "", "path of the data on this machine, instead of data.path");
ABSL_FLAG(
    std::string, device, "cpu",
    "cpu, cuda or cuda:INDEX. If there are several GPUs, 'cuda' selects GPU number slot modulo the "
    "visible GPUs; with --stage, a different GPU for each process on a machine. Or several "
    "devices: cuda:0,cuda:1 or cpu,cpu; cuda:all; or auto, for all GPUs or else the CPU. Each "
    "device holds a replica of the model, and the replicas push together; for a module in stages, "
    "each device holds one stage");
ABSL_FLAG(int, gpu_number, -1,
          "with --device=cuda: use the GPU with this number, modulo the visible GPUs, instead of "
          "the slot's number; for launchers");
ABSL_FLAG(int, micro_batches, 0,
          "with a --device for each stage: number of parts of a batch that the stages compute "
          "concurrently; 0 means two per stage");
ABSL_FLAG(int, stage, -1,
          "for a model divided among several processes: the stage of this process, from 0; all "
          "processes need the same --replica");
ABSL_FLAG(std::vector<std::string>, replica, {},
          "with --stage: the addresses of all these processes, HOST:PORT, in stage order; this "
          "process listens on the address of --stage");
ABSL_FLAG(bool, devices, false, "print the devices that this program can use, and exit");
ABSL_FLAG(int, slot, -1, "the worker's slot; -1 means the lowest free slot");
ABSL_FLAG(bool, predecessor_died, false,
          "with --slot: the slot's previous process is dead, so this worker takes over immediately "
          "instead of after the lease expires; for launchers");
ABSL_FLAG(double, slow, 1, "slows down computing by this factor, to simulate a straggler");
ABSL_FLAG(double, pace, 0,
          "minimum milliseconds per step, for the step's share of training.batch_size * accumulate "
          "samples; --slow multiplies this");
ABSL_FLAG(int, threads, 1, "threads for torch, divided among the devices");
ABSL_FLAG(int, loader_threads, 0,
          "threads per device that prepare batches in advance; they then call the dataset and "
          "augment");
ABSL_FLAG(absl::Duration, patience, absl::Seconds(60),
          "how long to wait for a server that does not answer");
ABSL_FLAG(bool, local, false, "train alone, with servers inside this process and no network");
ABSL_FLAG(bool, dry_run, false,
          "try one training batch and one evaluation batch, without servers, and exit");
ABSL_FLAG(int, local_servers, 2, "with --local: number of servers");
ABSL_FLAG(std::string, dir, "",
          "with --local: the run's folder, for the model and checkpoints; by default "
          "runs/NAME-TIME");
ABSL_FLAG(bool, resume, false, "with --local: resume the job in --dir");
ABSL_FLAG(std::string, evaluate, "",
          "evaluate this model on the job's test set, and exit: a .safetensors or .pt file, or a "
          "run's folder");
ABSL_FLAG(
    absl::Duration, evaluate_every, absl::ZeroDuration(),
    "with --servers: do not train or use a slot; evaluate the running job's values on the test "
    "set at this interval until the job ends. Uses the servers' job, changed by --set and "
    "--data");
ABSL_FLAG(std::string, predict, "",
          "write this model's predictions, and exit: for the samples in --data, which may lack "
          "answers, or without --data for the job's test set");
ABSL_FLAG(std::string, generate, "",
          "write --generate_prompt and this language model's continuation, and exit");
ABSL_FLAG(std::string, generate_prompt, "",
          "with --generate: the beginning of the text; token ids, such as \"17 4 250\", if the "
          "model's vocabulary is not the 256 bytes");
ABSL_FLAG(int64_t, generate_length, 200, "with --generate: bytes or tokens to add");
ABSL_FLAG(
    double, generate_temperature, 0.8,
    "with --generate: above 1 flattens the probabilities, below 1 sharpens them; 0 always uses "
    "the most likely token");
ABSL_FLAG(int64_t, generate_top_k, 0,
          "with --generate: draw among the K most likely tokens; 0 means all tokens");
ABSL_FLAG(int64_t, generate_seed, 1,
          "with --generate: seed of the random draws; each seed gives a different text");
ABSL_FLAG(bool, on_training_data, false,
          "with --evaluate, --evaluate_every or --predict: use the training samples instead");
ABSL_FLAG(std::string, out, "",
          "with --evaluate, --evaluate_every or --predict: the file to write; for predictions the "
          "suffix selects the format: .csv, .jsonl, .npy or .safetensors");
ABSL_FLAG(bool, json, false,
          "with --evaluate, --evaluate_every or --predict: write JSON instead of text or CSV");
ABSL_FLAG(
    bool, download, false,
    "first download MNIST, if missing, into the directory in --data or data.path, or if both are "
    "empty into this machine's cache (TORCHPS_CACHE or ~/.cache/torchps)");
ABSL_FLAG(std::vector<std::string>, mirrors, {},
          "with --download: URLs of directories with the four files, instead of public mirrors");
ABSL_FLAG(double, progress_seconds, 1, "seconds between progress lines");
ABSL_FLAG(bool, exit_with_parent, false,
          "stop when standard input ends or the parent process dies: for launchers");

namespace torchps {
namespace {

// Checks the flags that all modes use to create a worker.
absl::Status CheckWorkerFlags() {
  if (absl::GetFlag(FLAGS_threads) < 1) return absl::InvalidArgumentError("--threads is below 1");
  return FlaggedHandicap().status();
}

// Returns how many of --evaluate, --predict and --generate are set.
int LooksFlagged() {
  int looks = 0;
  for (const std::string& model : {absl::GetFlag(FLAGS_evaluate), absl::GetFlag(FLAGS_predict),
                                   absl::GetFlag(FLAGS_generate)}) {
    if (!model.empty()) ++looks;
  }
  return looks;
}

absl::Status CheckSampling() {
  if (absl::GetFlag(FLAGS_generate_prompt).empty()) {
    return absl::InvalidArgumentError("--generate needs a prompt: set --generate_prompt");
  }
  if (const int64_t length = absl::GetFlag(FLAGS_generate_length); length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the length to generate is ", length, "; expected 1 or more"));
  }
  if (const int64_t top_k = absl::GetFlag(FLAGS_generate_top_k); top_k < 0) {
    return absl::InvalidArgumentError(absl::StrCat("top_k is ", top_k, "; expected 0 or more"));
  }
  const double temperature = absl::GetFlag(FLAGS_generate_temperature);
  if (temperature >= 0 && std::isfinite(temperature)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the temperature is ", temperature, "; expected a number from 0"));
}

}  // namespace

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

WorkerMode FlaggedMode() {
  if (absl::GetFlag(FLAGS_evaluate_every) != absl::ZeroDuration()) return WorkerMode::kWatch;
  return LooksFlagged() > 0 ? WorkerMode::kLook : WorkerMode::kTrain;
}

bool JoinsAnyJob(const std::vector<std::string>& overrides) {
  return FlaggedMode() == WorkerMode::kTrain && !absl::GetFlag(FLAGS_servers).empty() &&
         absl::GetFlag(FLAGS_job).empty() && overrides.empty();
}

absl::Status ApplyFlags(const std::vector<std::string>& overrides, JobSpec* job) {
  for (const std::string& assignment : overrides) {
    if (absl::Status status = ApplyOverride(job, assignment); !status.ok()) return status;
  }
  if (const std::string data = absl::GetFlag(FLAGS_data); !data.empty()) {
    job->mutable_data()->set_path(data);
  }
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> FlaggedJob(const std::vector<std::string>& overrides) {
  const std::string path = absl::GetFlag(FLAGS_job);
  absl::StatusOr<JobSpec> job =
      path.empty() ? absl::StatusOr<JobSpec>(JobSpec()) : ParseJobFile(path);
  if (!job.ok()) return job.status();
  if (absl::Status status = ApplyFlags(overrides, &*job); !status.ok()) return status;
  // Other processes cannot reach the servers of --local, so there is one worker.
  if (absl::GetFlag(FLAGS_local)) job->set_workers(1);
  // Inference does not train, so the learning rate is optional.
  if (FlaggedMode() == WorkerMode::kLook && job->optimizer().learning_rate() == 0) {
    job->mutable_optimizer()->set_learning_rate(1);
  }
  return NormalizeJobSpec(*std::move(job));
}

absl::StatusOr<SimulatedSlowdown::Options> FlaggedHandicap() {
  SimulatedSlowdown::Options handicap;
  handicap.slow = absl::GetFlag(FLAGS_slow);
  handicap.pace = absl::Milliseconds(absl::GetFlag(FLAGS_pace));
  if (absl::Status status = SimulatedSlowdown::Check(handicap); !status.ok()) return status;
  return handicap;
}

absl::Status CheckTrainFlags() {
  const bool local = absl::GetFlag(FLAGS_local);
  if (absl::GetFlag(FLAGS_dry_run)) {
    if (local || !absl::GetFlag(FLAGS_servers).empty() || absl::GetFlag(FLAGS_stage) >= 0) {
      return absl::InvalidArgumentError(
          "--dry_run does not join a job and tries the whole model; leave out --servers, --local "
          "and "
          "--stage");
    }
    return CheckWorkerFlags();
  }
  if (absl::GetFlag(FLAGS_servers).empty() != local) {
    return absl::InvalidArgumentError(
        "set exactly one of --servers=HOST:PORT,... to join a job, --local to train alone, "
        "--dry_run, --evaluate=MODEL, --predict=MODEL and --generate=MODEL");
  }
  if (!local && (!absl::GetFlag(FLAGS_dir).empty() || absl::GetFlag(FLAGS_resume))) {
    return absl::InvalidArgumentError(
        "--dir and --resume need --local; separate servers have their own --dir");
  }
  if (local && absl::GetFlag(FLAGS_resume) && absl::GetFlag(FLAGS_dir).empty()) {
    return absl::InvalidArgumentError(
        "--resume needs --dir=DIR, the directory with the job's state");
  }
  if (local && absl::GetFlag(FLAGS_local_servers) < 1) {
    return absl::InvalidArgumentError("--local_servers is below 1");
  }
  if (absl::GetFlag(FLAGS_predecessor_died) && absl::GetFlag(FLAGS_slot) < 0) {
    return absl::InvalidArgumentError(
        "--predecessor_died needs --slot=N, the slot of the dead process");
  }
  if (absl::Status status = CheckWorkerFlags(); !status.ok()) return status;
  if ((absl::GetFlag(FLAGS_stage) >= 0) != !absl::GetFlag(FLAGS_replica).empty()) {
    return absl::InvalidArgumentError(
        "--stage and --replica must be set together: the model stage of this process, and the "
        "addresses of all processes of the replica");
  }
  if (absl::GetFlag(FLAGS_stage) >= 0 && absl::GetFlag(FLAGS_local)) {
    return absl::InvalidArgumentError(
        "--stage needs servers that all processes can reach: use --servers instead of --local");
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

absl::Status CheckInferenceFlags(bool can) {
  if (!can) {
    return absl::InvalidArgumentError(
        "this program has its own training loop, so it does not support --evaluate, --predict or "
        "--generate; load its models with torchps::LoadState");
  }
  if (LooksFlagged() > 1 || absl::GetFlag(FLAGS_local) || !absl::GetFlag(FLAGS_servers).empty()) {
    return absl::InvalidArgumentError(
        "set exactly one of --servers=HOST:PORT,..., --local, --evaluate=MODEL, --predict=MODEL "
        "and --generate=MODEL");
  }
  const bool predicts_data =
      !absl::GetFlag(FLAGS_predict).empty() && !absl::GetFlag(FLAGS_data).empty();
  if (predicts_data && absl::GetFlag(FLAGS_on_training_data)) {
    return absl::InvalidArgumentError(
        "--predict uses all samples of --data; leave out --data or --on_training_data");
  }
  if (!absl::GetFlag(FLAGS_generate).empty()) {
    if (absl::Status status = CheckSampling(); !status.ok()) return status;
  }
  return CheckWorkerFlags();
}

absl::Status CheckWatchFlags(bool can) {
  if (!can) {
    return absl::InvalidArgumentError(
        "this program has its own training loop, so it does not support --evaluate_every");
  }
  if (absl::GetFlag(FLAGS_evaluate_every) < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "--evaluate_every is below 0; expected a duration such as 5s");
  }
  if (absl::GetFlag(FLAGS_servers).empty() || absl::GetFlag(FLAGS_local)) {
    return absl::InvalidArgumentError(
        "--evaluate_every needs --servers=HOST:PORT,..., all servers of the running job");
  }
  if (!absl::GetFlag(FLAGS_job).empty()) {
    return absl::InvalidArgumentError("--evaluate_every uses the servers' job; leave out --job");
  }
  if (LooksFlagged() > 0) {
    return absl::InvalidArgumentError(
        "set only one of --evaluate_every, --evaluate=MODEL, --predict=MODEL and "
        "--generate=MODEL");
  }
  return CheckWorkerFlags();
}

absl::StatusOr<std::vector<ServerEndpoint>> FlaggedServers(
    const std::function<void(const std::string& line)>& log) {
  const absl::StatusOr<std::shared_ptr<CertificateFiles>> certificates =
      OpenCertificates(absl::GetFlag(FLAGS_certs), Role::kWorker, log);
  if (!certificates.ok()) return certificates.status();
  AddressResolver::Options book;
  book.certificates = *certificates;
  for (const std::string& text : absl::GetFlag(FLAGS_servers)) {
    const absl::StatusOr<AddressSource> source = AddressSource::Parse(text);
    if (!source.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--servers: ", source.status().message()));
    }
    book.servers.push_back(*source);
  }
  return GetEndpoints(std::make_shared<AddressResolver>(std::move(book)));
}

}  // namespace torchps
