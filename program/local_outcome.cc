#include "program/local_outcome.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"

namespace torchps {
namespace {

// Short, because the server is in this process.
constexpr std::chrono::seconds kTimeout(5);

}  // namespace

absl::optional<JobStatus> AskForOutcome(const ServerEndpoint& coordinator) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  JobStatus job;
  const grpc::Status status =
      Coordinator::NewStub(coordinator.channel)->GetJobStatus(&context, JobStatusRequest(), &job);
  if (!status.ok()) return absl::nullopt;
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

}  // namespace torchps
