#include "torchps/program/live_evaluator.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "torchps/client/calls/address_resolver.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/block_map.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/transport/status_codec.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/state_file.h"

namespace torchps {
namespace {

using Json = nlohmann::ordered_json;

// The deadline of a call that the coordinator answers immediately.
constexpr absl::Duration kAnswer = absl::Seconds(5);
// The deadline of a call that the coordinator parks. It limits the time until a lost machine is
// detected.
constexpr absl::Duration kParked = absl::Seconds(30);
// The pause between two calls while the job has not started or the server is unavailable.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Asks the coordinator for the job status.
class JobQuestions {
 public:
  explicit JobQuestions(const LiveEvaluatorOptions& options)
      : options_(options),
        server_(options.servers.front()),
        stub_(Coordinator::NewStub(server_.channel)),
        answered_at_(options.clock->Now()) {}

  // Returns the current job status. Retries failed calls for `patience`, then returns the error.
  absl::StatusOr<JobStatus> Ask() {
    while (true) {
      absl::StatusOr<JobStatus> job = Call(/*wait_until_done=*/false, kAnswer);
      if (job.ok()) return job;
      if (absl::Status status = Tolerate(job.status()); !status.ok()) return status;
    }
  }

  // Blocks until the job ends or until `until`. Returns true if the job ended.
  absl::StatusOr<bool> HasEndedBy(absl::Duration until) {
    bool parked_out = false;
    while (true) {
      const absl::Duration left = until - options_.clock->Now();
      if (left <= absl::ZeroDuration() || parked_out) {
        const absl::StatusOr<JobStatus> job = Ask();
        if (!job.ok()) return job.status();
        if (job->phase() == JobStatus::DONE) return true;
        if (left <= absl::ZeroDuration()) return false;
      }
      const absl::Status parked = Call(/*wait_until_done=*/true, std::min(left, kParked)).status();
      if (parked.ok()) return true;
      parked_out = absl::IsDeadlineExceeded(parked);
      if (parked_out) continue;
      if (absl::Status status = Tolerate(parked); !status.ok()) return status;
    }
  }

 private:
  absl::StatusOr<JobStatus> Call(bool wait_until_done, absl::Duration timeout) {
    if (options_.stop->stopped()) return absl::CancelledError(options_.stop->reason());
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    const StopLatch::Registration stopping(options_.stop, [&context] { context.TryCancel(); });
    JobStatusRequest request;
    request.set_wait_until_done(wait_until_done);
    JobStatus job;
    const absl::Status status = FromGrpcStatus(stub_->GetJobStatus(&context, request, &job));
    if (options_.stop->stopped()) return absl::CancelledError(options_.stop->reason());
    if (!status.ok()) return status;
    answered_at_ = options_.clock->Now();
    return job;
  }

  // Pauses and returns OK if the call should be repeated; otherwise returns the error.
  absl::Status Tolerate(const absl::Status& failure) {
    const bool away = absl::IsUnavailable(failure) || absl::IsDeadlineExceeded(failure);
    const absl::Duration silence = options_.clock->Now() - answered_at_;
    if (!away || silence >= options_.patience) {
      return absl::Status(failure.code(), absl::StrCat(server_.name(), ": ", failure.message()));
    }
    if (const std::optional<ServerEndpoint> moved = MovedFrom(server_, silence)) {
      server_ = *moved;
      stub_ = Coordinator::NewStub(server_.channel);
    }
    if (options_.stop->WaitFor(kPause)) return absl::CancelledError(options_.stop->reason());
    return absl::OkStatus();
  }

  const LiveEvaluatorOptions& options_;
  ServerEndpoint server_;
  std::unique_ptr<Coordinator::Stub> stub_;
  absl::Duration answered_at_;
};

// Reads and measures the values of a job without joining it.
class Watch {
 public:
  static absl::StatusOr<std::unique_ptr<Watch>> Begin(const Task& task, const JobSpec& job,
                                                      const LiveEvaluatorOptions& options) {
    const Dataset* const samples =
        (options.on_training_data ? task.data().train : task.data().test).get();
    if (samples == nullptr || samples->size() == 0) {
      return absl::FailedPreconditionError(options.on_training_data
                                               ? "the job's data have no training samples"
                                               : "the job's data have no test samples; "
                                                 "--on_training_data uses the training samples");
    }
    // Frozen parameters come from the init_from file, because the servers do not hold them.
    if (const ModelSpec& model = job.model(); !model.init_from().empty()) {
      const absl::Status loaded = LoadState(task.module(), model.init_from(),
                                            model.init_partial() ? Match::kCommon : Match::kAll);
      if (!loaded.ok()) {
        return absl::Status(loaded.code(), absl::StrCat("model.init_from: ", loaded.message()));
      }
    }
    absl::StatusOr<std::unique_ptr<FlatModel>> model = FlatModel::Create(
        task.module(), options.device,
        [&job](const std::string& name) { return GetGroup(job.optimizer(), name); });
    if (!model.ok()) return model.status();
    absl::StatusOr<BlockMap> block_map = BlockMap::Create(
        (*model)->layout(), job.wire().block_bytes(), static_cast<int>(options.servers.size()));
    if (!block_map.ok()) return block_map.status();
    ParameterClient::Options client;
    client.servers = options.servers;
    client.layout = (*model)->layout();
    client.block_map = *std::move(block_map);
    client.job = job;
    client.slot = -1;
    client.patience = options.patience;
    client.log = options.log;
    client.clock = options.clock;
    client.stop = options.stop;
    absl::StatusOr<std::unique_ptr<ParameterClient>> parameters =
        ParameterClient::Create(std::move(client));
    if (!parameters.ok()) return parameters.status();
    return std::unique_ptr<Watch>(new Watch(task, job.training().precision(), options, samples,
                                            *std::move(model), *std::move(parameters)));
  }

  absl::Status Run() {
    absl::Duration next = options_.clock->Now();
    while (true) {
      const absl::StatusOr<bool> ended = questions_.HasEndedBy(next);
      if (!ended.ok()) return ended.status();
      const absl::StatusOr<Measured> measured = Measure();
      if (measured.ok()) {
        if (absl::Status told = options_.on_measured(*measured); !told.ok()) return told;
      } else if (*ended || !IsPassing(measured.status())) {
        return measured.status();
      } else {
        options_.log(absl::StrCat("skipped one measurement: ", measured.status().message()));
      }
      if (*ended) return absl::OkStatus();
      const absl::Duration now = options_.clock->Now();
      while (next <= now) next += options_.every;
    }
  }

 private:
  Watch(const Task& task, TrainingSpec::Precision precision, const LiveEvaluatorOptions& options,
        const Dataset* samples, std::unique_ptr<FlatModel> model,
        std::unique_ptr<ParameterClient> parameters)
      : task_(task),
        precision_(precision),
        options_(options),
        samples_(samples),
        model_(std::move(model)),
        parameters_(std::move(parameters)),
        questions_(options) {}

  // True for errors that a restarting server causes until it has restored its values.
  static bool IsPassing(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
           absl::IsFailedPrecondition(status);
  }

  absl::StatusOr<Measured> Measure() {
    const absl::StatusOr<PullResult> pull =
        parameters_->Pull(/*clock=*/0, /*read_only=*/true, model_->values());
    if (!pull.ok()) return pull.status();
    const absl::Duration pulled_at = options_.clock->Now();
    const absl::StatusOr<JobStatus> job = questions_.Ask();
    if (!job.ok()) return job.status();
    Measured measured;
    measured.seconds = job->running_seconds();
    if (job->phase() == JobStatus::RUNNING) {
      measured.seconds -= absl::ToDoubleSeconds(options_.clock->Now() - pulled_at);
      measured.seconds = std::max(0.0, measured.seconds);
    }
    for (const EpochAccounting& epoch : job->epoch()) measured.samples += epoch.used();
    for (const SlotAccounting& slot : job->slot()) {
      measured.pushes += static_cast<int64_t>(slot.figures().pushes());
    }
    if (absl::Status status = model_->ToDevice(); !status.ok()) return status;
    absl::StatusOr<Evaluation> evaluation =
        Evaluate(task_, samples_, model_->device(), precision_, options_.stop);
    if (!evaluation.ok()) return evaluation.status();
    measured.evaluation = *std::move(evaluation);
    return measured;
  }

  const Task& task_;
  const TrainingSpec::Precision precision_;
  const LiveEvaluatorOptions& options_;
  const Dataset* const samples_;
  const std::unique_ptr<FlatModel> model_;
  const std::unique_ptr<ParameterClient> parameters_;
  JobQuestions questions_;
};

}  // namespace

std::string MeasuredJson(const Measured& measured) {
  Json json = {{"seconds", measured.seconds},      {"samples_used", measured.samples},
               {"pushes", measured.pushes},        {"samples", measured.evaluation.samples},
               {"loss", measured.evaluation.loss}, {"metrics", Json::object()},
               {"lower_is_better", {"loss"}}};
  for (const Evaluation::Value& metric : measured.evaluation.metrics) {
    json["metrics"][metric.name] = metric.value;
    if (metric.lower_is_better) json["lower_is_better"].push_back(metric.name);
  }
  // The program's names may use another encoding than JSON.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string MeasuredText(const Measured& measured) {
  const Evaluation& evaluation = measured.evaluation;
  std::string text =
      absl::StrFormat("%.1f s, %d samples used, %d pushes: loss %.6g", measured.seconds,
                      measured.samples, measured.pushes, evaluation.loss);
  for (const Evaluation::Value& metric : evaluation.metrics) {
    absl::StrAppendFormat(&text, ", %s %.6g", metric.name, metric.value);
  }
  absl::StrAppend(&text, " on ", evaluation.samples, " samples");
  return text;
}

absl::StatusOr<JobStatus> AwaitRunningJob(const LiveEvaluatorOptions& options) {
  JobQuestions questions(options);
  while (true) {
    absl::StatusOr<JobStatus> job = questions.Ask();
    if (!job.ok() || job->phase() >= JobStatus::RUNNING) return job;
    if (options.stop->WaitFor(kPause)) return absl::CancelledError(options.stop->reason());
  }
}

absl::StatusOr<JobSpec> JobOfServers(const LiveEvaluatorOptions& options) {
  const absl::StatusOr<JobStatus> job = JobQuestions(options).Ask();
  if (!job.ok()) return job.status();
  if (job->phase() != JobStatus::NO_JOB) return job->job();
  return absl::FailedPreconditionError(
      "the servers do not have a job yet; start one with --job=FILE (without --job a worker joins "
      "the servers' job)");
}

absl::Status WatchJob(const Task& task, const JobSpec& job, const LiveEvaluatorOptions& options) {
  const absl::StatusOr<std::unique_ptr<Watch>> watch = Watch::Begin(task, job, options);
  return watch.ok() ? (*watch)->Run() : watch.status();
}

}  // namespace torchps
