#include "server/coordinator/job_terms.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ids.h"
#include "job/job_difference.h"
#include "job/job_spec.h"
#include "wire/layout_codec.h"

namespace torchps {
namespace {

constexpr char kRunningJob[] = "the running job";
constexpr char kThisWorker[] = "this worker";

}  // namespace

absl::StatusOr<JobTerms> JobTerms::FromJoin(const JoinRequest& request) {
  if (request.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the coordinator speaks protocol version ", kProtocolVersion,
                     ", this worker speaks version ", request.protocol_version(),
                     ": use programs of the same release"));
  }
  JobTerms terms;
  absl::StatusOr<JobSpec> job = NormalizeJobSpec(request.job());
  if (!job.ok()) return job.status();
  terms.job = *std::move(job);
  absl::StatusOr<ModelLayout> layout = DecodeLayout(request.layout());
  if (!layout.ok()) return layout.status();
  terms.layout = *std::move(layout);
  if (request.server_count() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("server_count is ", request.server_count(), "; expected at least 1"));
  }
  terms.train_samples = request.train_samples();
  terms.server_count = request.server_count();
  return terms;
}

absl::Status JobTerms::CheckSame(const JobTerms& joiner) const {
  absl::Status same = CheckSameJob(job, joiner.job, kRunningJob, kThisWorker);
  if (!same.ok()) return same;
  same = layout.CheckSame(joiner.layout, kRunningJob, kThisWorker);
  if (!same.ok()) return same;
  if (joiner.train_samples != train_samples) {
    return absl::FailedPreconditionError(
        absl::StrCat(kRunningJob, " has ", train_samples, " training samples, ", kThisWorker,
                     " sees ", joiner.train_samples, ": all workers need the same data"));
  }
  if (joiner.server_count != server_count) {
    return absl::FailedPreconditionError(
        absl::StrCat(kRunningJob, " has ", server_count, " servers, ", kThisWorker, " was given ",
                     joiner.server_count, ": give all workers the same --servers list"));
  }
  return absl::OkStatus();
}

}  // namespace torchps
