#include "torchps/server/coordinator/job_terms.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/types.h"
#include "torchps/job/job_difference.h"
#include "torchps/job/job_spec.h"
#include "torchps/server/coordinator/resumed_state.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {

void JobPhase::Enter(JobStatus::Phase phase, absl::Duration now) {
  phase_ = phase;
  ChangedVitally();
  phase_revision_ = revision_;
  if (phase == JobStatus::RUNNING) started_at_ = now - ran_before_;
  if (phase == JobStatus::DONE) ended_at_ = now;
}

void JobPhase::Publish() {
  if (!is_kept_ || synced_revision_ >= phase_revision_) told_ = phase_;
}

void JobPhase::Restore(JobStatus::Phase phase, uint64_t revision, absl::Duration ran,
                       absl::Duration now) {
  revision_ = revision;
  ChangedVitally();
  phase_ = phase;
  // OnSynced() reports when this revision is synced.
  phase_revision_ = revision;
  ran_before_ = ran;
  started_at_ = now - ran;
  ended_at_ = now;
}

absl::Duration JobPhase::RunningTime(absl::Duration now) const {
  if (phase_ < JobStatus::RUNNING) return ran_before_;
  return (phase_ == JobStatus::DONE ? ended_at_ : now) - started_at_;
}

void JobPhase::OnSynced(uint64_t revision) {
  synced_revision_ = std::max(synced_revision_, revision);
}

namespace {

constexpr char kRunningJob[] = "the running job";
constexpr char kThisWorker[] = "this worker";
// Bound of JobTerms::state_bytes, far above any model.
constexpr int64_t kMaxModelStateBytes = int64_t{1} << 50;

// Compares fingerprints of the samples. The fingerprint 0 means unknown and is not compared.
absl::Status CheckSameSamples(const char* of, uint32_t job, uint32_t joiner) {
  if (job == joiner || job == 0 || joiner == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      kRunningJob, " has different ", of, " samples than ", kThisWorker,
      " (compared by a few of them)", ": all workers need the same data, in the same order"));
}

// Fills in fields that older versions omitted. They saved all fields of the job except those with
// the value 0. An absent field would now get a default that may differ from 0.
JobSpec SavedJob(JobSpec job) {
  ConsistencySpec* consistency = job.mutable_consistency();
  if (!consistency->has_mode()) consistency->set_mode(ConsistencySpec::ASYNC);
  TrainingSpec* training = job.mutable_training();
  if (!training->has_balance()) training->set_balance(TrainingSpec::EQUAL);
  if (!training->has_global_batch()) training->set_global_batch(false);
  return job;
}

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
  if (request.state_bytes() < 0 || request.state_bytes() > kMaxModelStateBytes) {
    return absl::InvalidArgumentError(absl::StrCat("state_bytes is ", request.state_bytes(),
                                                   "; expected 0 to ", kMaxModelStateBytes));
  }
  terms.train_samples = request.train_samples();
  terms.state_bytes = request.state_bytes();
  terms.data_fingerprint = DataFingerprint::Of(request.data_fingerprint());
  terms.model = request.model();
  terms.data = request.data();
  terms.server_count = request.server_count();
  return terms;
}

absl::StatusOr<JobTerms> JobTerms::FromState(const CoordinatorState& state) {
  JobTerms terms;
  absl::StatusOr<JobSpec> job = NormalizeJobSpec(SavedJob(state.job()));
  if (!job.ok()) return DamagedState(job.status().message());
  absl::StatusOr<ModelLayout> layout = DecodeLayout(state.layout());
  if (!layout.ok()) return DamagedState(layout.status().message());
  if (state.server_count() < 0) return DamagedState("server_count is ", state.server_count());
  terms.job = *std::move(job);
  terms.layout = *std::move(layout);
  terms.train_samples = state.train_samples();
  terms.state_bytes = std::clamp<int64_t>(state.state_bytes(), 0, kMaxModelStateBytes);
  terms.data_fingerprint = DataFingerprint::Of(state.data_fingerprint());
  terms.model = state.model();
  terms.data = state.data();
  terms.server_count = state.server_count();
  const absl::Status completed = CompleteJobSpec(&terms.job, terms.train_samples);
  if (!completed.ok()) return DamagedState(completed.message());
  return terms;
}

void JobTerms::SaveTo(CoordinatorState* state) const {
  *state->mutable_job() = job;
  *state->mutable_layout() = EncodeLayout(layout);
  state->set_train_samples(train_samples);
  state->set_state_bytes(state_bytes);
  state->set_data_fingerprint(data_fingerprint.number());
  state->set_model(model);
  state->set_data(data);
  state->set_server_count(server_count);
}

absl::StatusOr<JobTerms> JobTerms::ResumeWith(const JobTerms& joiner) const {
  if (absl::Status may = CheckMayResume(job, joiner.job); !may.ok()) return may;
  JobTerms terms = *this;
  terms.job = joiner.job;
  terms.server_count = joiner.server_count;
  terms.state_bytes = joiner.state_bytes;
  absl::Status status = CompleteJobSpec(&terms.job, train_samples);
  if (status.ok()) status = terms.CheckSame(joiner);
  if (!status.ok()) return status;
  terms.data_fingerprint = data_fingerprint.CompletedBy(joiner.data_fingerprint);
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
  same = CheckSameSamples("training", data_fingerprint.train, joiner.data_fingerprint.train);
  if (!same.ok()) return same;
  same = CheckSameSamples("test", data_fingerprint.test, joiner.data_fingerprint.test);
  if (!same.ok()) return same;
  if (joiner.server_count != server_count) {
    return absl::FailedPreconditionError(
        absl::StrCat(kRunningJob, " has ", server_count, " servers, ", kThisWorker, " was given ",
                     joiner.server_count, ": give all workers the same --servers list"));
  }
  return absl::OkStatus();
}

}  // namespace torchps
