#include "torchps/program/local_run.h"

#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/storage/file_system.h"
#include "torchps/storage/run_folder.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<InProcessCluster>> InProcessCluster::Start(
    int servers, const Clock* clock, const std::string& dir, bool resume,
    const std::string& model_dir) {
  std::random_device random;
  std::unique_ptr<InProcessCluster> cluster(new InProcessCluster());
  for (int index = 0; index < servers; ++index) {
    Server::Options options;
    options.listen.clear();
    options.threads = 1;
    options.seed = (uint64_t{random()} << 32) | random();
    options.clock = clock;
    options.dir = dir;
    if (index == 0) options.model_dir = model_dir;
    options.resume = resume && index == 0;
    options.peer_channel = [cluster = cluster.get()](int peer, const std::string&) {
      return cluster->servers_[static_cast<size_t>(peer)]->InProcessChannel();
    };
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(std::move(options));
    if (!server.ok()) return server.status();
    cluster->endpoints_.push_back({index, /*address=*/"", (*server)->InProcessChannel()});
    cluster->servers_.push_back(*std::move(server));
  }
  return cluster;
}

namespace {

// Short, because the server is in this process.
constexpr std::chrono::seconds kTimeout(5);

}  // namespace

std::optional<JobStatus> AskForOutcome(const ServerEndpoint& coordinator) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  JobStatus job;
  const grpc::Status status =
      Coordinator::NewStub(coordinator.channel)->GetJobStatus(&context, JobStatusRequest(), &job);
  if (!status.ok()) return std::nullopt;
  return job;
}

std::string OutcomeText(const JobStatus& job) {
  int closed = 0;
  for (const EpochAccounting& epoch : job.epoch()) closed += epoch.closed() ? 1 : 0;
  std::string text =
      absl::StrFormat("%s %s after %d %s in %.1f s", job.job().name(),
                      job.phase() == JobStatus::DONE ? "finished" : "has not finished", closed,
                      closed == 1 ? "epoch" : "epochs", job.running_seconds());
  if (!job.stopped().empty()) absl::StrAppend(&text, ", stopped early: ", job.stopped());
  if (job.evaluation().empty()) return text;
  const EvaluationResult& last = *job.evaluation().rbegin();
  if (last.samples() == 0) return text;
  absl::StrAppendFormat(&text, ": test loss %.4g", last.loss());
  for (const MetricValue& metric : last.metric()) {
    absl::StrAppendFormat(&text, ", %s %.4g", metric.name(), metric.value());
  }
  return text;
}

absl::Status ModelKept(const JobStatus& job) {
  if (job.evaluation().empty()) return absl::OkStatus();
  const std::string& reason = job.evaluation().rbegin()->model_not_kept();
  if (reason.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the job has ended without a model: ", reason));
}

namespace {

// Maximum wait of End() for the last checkpoint.
constexpr absl::Duration kLastCheckpoint = absl::Minutes(1);

std::string JobFileIn(const std::string& dir) { return absl::StrCat(dir, "/job.textproto"); }

// Saves the job next to the model, because `psctl evaluate` needs both.
absl::Status KeepJobFile(const std::string& dir, JobSpec job) {
  job.mutable_data()->set_path(AbsoluteIfThere(job.data().path()));
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const absl::Status written = WriteFileAtomically(*files, JobFileIn(dir), text);
  return written.ok() ? written : absl::ResourceExhaustedError(written.message());
}

}  // namespace

absl::StatusOr<LocalRun> LocalRun::Start(const JobSpec& job, Options options) {
  if (options.dir.empty()) {
    absl::StatusOr<std::string> made = MakeRunFolder(job.name(), absl::Now());
    if (!made.ok()) return made.status();
    options.dir = *std::move(made);
  }
  const std::string& dir = options.dir;
  const std::string state = StateDirectory(dir);
  if (!options.resume && access(absl::StrCat(state, "/coordinator.state").c_str(), F_OK) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dir=", dir, " contains a job; resume it with --resume, or use an empty directory"));
  }
  std::error_code error;
  std::filesystem::create_directories(state, error);
  if (error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot create the folder ", dir, ": ", error.message()));
  }
  // When resuming, keep the old job file: the servers may refuse the job, and the old file then
  // still describes the model.
  const bool later = options.resume && access(JobFileIn(dir).c_str(), F_OK) == 0;
  const absl::Status kept = later ? absl::OkStatus() : KeepJobFile(dir, job);
  if (!kept.ok()) return kept;
  absl::StatusOr<std::unique_ptr<InProcessCluster>> started =
      InProcessCluster::Start(options.servers, options.clock, state, options.resume, dir);
  if (!started.ok()) return started.status();
  return LocalRun(std::move(options.dir), *std::move(started), later);
}

absl::Status LocalRun::End(const absl::Status& result, const Say& print, const Say& log) {
  const bool went_on = result.ok() || absl::IsCancelled(result);
  const std::optional<JobStatus> job = AskForOutcome(endpoints().front());
  absl::Status outcome = result;
  if (result.ok() && job.has_value()) outcome = ModelKept(*job);
  if (job.has_value() && job->phase() >= JobStatus::RUNNING) {
    print(OutcomeText(*job));
    if (has_other_terms_ && went_on) {
      const absl::Status written = KeepJobFile(dir_, job->job());
      if (!written.ok()) log(std::string(written.message()));
    }
  }
  const absl::Status kept = cluster_->server(0).TakeLastCheckpoint(kLastCheckpoint);
  if (!kept.ok()) log(absl::StrCat("the last checkpoint failed: ", kept.message()));
  cluster_.reset();
  const std::string model = absl::StrCat(dir_, "/model.safetensors");
  if (access(model.c_str(), F_OK) != 0) return outcome;
  print(absl::StrCat("model: ", model));
  print(absl::StrCat("load it: safetensors.torch.load_file(\"", model,
                     "\") in Python, torchps::LoadModel(module, \"", model, "\") in C++"));
  return outcome;
}

}  // namespace torchps
