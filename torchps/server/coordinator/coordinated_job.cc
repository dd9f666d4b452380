#include "torchps/server/coordinator/coordinated_job.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/job/job_spec.h"
#include "torchps/server/coordinator/resumed_state.h"
#include "torchps/server/coordinator/slot_registry.h"

namespace torchps {
namespace {

// A restarted coordinator skips this many incarnations. The process before it may have assigned
// some after the state was saved, and these must never be assigned again.
constexpr Incarnation kIncarnationGap = 1 << 20;
// Same for a state from a backup copy. Many processes may have joined since that copy was made.
constexpr Incarnation kCopyGap = kIncarnationGap << 10;

// If the first checkpoint fails this many times, training starts without it, so that a full disk
// does not stop a job.
constexpr int kFirstTries = 2;

SlotRegistry::Options SlotOptions(const JobSpec& job, Incarnation first_incarnation) {
  SlotRegistry::Options slots;
  slots.lease = absl::Seconds(job.membership().lease_seconds());
  slots.first_incarnation = first_incarnation;
  return slots;
}

CheckpointSchedule::Options CheckpointOptions(const DurabilitySpec& durability) {
  CheckpointSchedule::Options checkpoints;
  checkpoints.interval = absl::Seconds(durability.checkpoint_seconds());
  checkpoints.steps = durability.checkpoint_steps();
  checkpoints.keep = durability.keep();
  return checkpoints;
}

AwaitStartReply StartReply(AwaitStartReply::Action action, uint32_t initialization = 0) {
  AwaitStartReply reply;
  reply.set_action(action);
  reply.set_initialization(initialization);
  return reply;
}

}  // namespace

CoordinatedJob::CoordinatedJob(Options options, uint64_t id, JobTerms terms,
                               Incarnation first_incarnation)
    : options_(options),
      id_(id),
      own_from_(first_incarnation),
      terms_(std::move(terms)),
      model_limits_(std::make_shared<ModelLimits>(ModelLimits{terms_.layout, terms_.state_bytes})),
      members_(SlotOptions(terms_.job, first_incarnation)),
      work_(terms_, options.has_directory),
      schedule_(CheckpointOptions(terms_.job.durability())),
      phase_(options.has_directory && durable()) {}

absl::StatusOr<std::unique_ptr<CoordinatedJob>> CoordinatedJob::Begin(Options options, uint64_t id,
                                                                      JobTerms terms,
                                                                      Incarnation first_incarnation,
                                                                      absl::Duration now) {
  absl::Status completed = CompleteJobSpec(&terms.job, terms.train_samples);
  if (!completed.ok()) return completed;
  auto job = absl::WrapUnique(new CoordinatedJob(options, id, std::move(terms), first_incarnation));
  job->phase_.Enter(JobStatus::GATHERING, now);
  return job;
}

absl::StatusOr<std::unique_ptr<CoordinatedJob>> CoordinatedJob::Restore(
    Options options, const CoordinatorState& state, Return how, absl::Duration now) {
  if (state.job_id() == 0 || state.phase() < JobStatus::GATHERING ||
      state.phase() > JobStatus::DONE || !(state.running_seconds() >= 0) ||
      state.running_seconds() > 1e12 || state.next_incarnation() == 0 ||
      state.next_incarnation() >= ~uint64_t{0} - 2 * kResumeGap) {
    return DamagedState("its numbers are out of range");
  }
  absl::StatusOr<JobTerms> terms = JobTerms::FromState(state);
  if (!terms.ok()) return terms.status();
  Incarnation gap = kIncarnationGap;
  if (how == Return::kResume) gap = kResumeGap;
  if (how == Return::kFromCopy) gap = kCopyGap;
  auto job = absl::WrapUnique(new CoordinatedJob(options, state.job_id(), *std::move(terms),
                                                 state.next_incarnation() + gap));
  if (absl::Status status = job->Load(state, now); !status.ok()) return status;
  if (how == Return::kResume) job->WaitForWorkers(now);
  if (job->phase() >= JobStatus::RUNNING) job->schedule_.Start(now, job->members_.MostSteps());
  if (job->phase() == JobStatus::DONE) {
    // If the job is resumed, the checkpoint or the logs already contain the end of the job.
    job->schedule_.End(/*one_more=*/how != Return::kResume && state.owes_last_checkpoint());
  }
  return job;
}

absl::StatusOr<std::unique_ptr<CoordinatedJob>> CoordinatedJob::ResumeWith(
    const JobTerms& joiner, absl::Duration now) const {
  absl::StatusOr<JobTerms> terms = terms_.ResumeWith(joiner);
  if (!terms.ok()) return terms.status();
  CoordinatorState state = Save(now);
  const int begun = state.leases().epoch_size();
  if (joiner.job.training().epochs() < begun) {
    return absl::FailedPreconditionError(
        absl::StrCat("training.epochs is ", joiner.job.training().epochs(), "; expected at least ",
                     begun, ", the number of epochs that have begun in the resumed job"));
  }
  // Even a job that has ended continues if the new terms add work.
  terms->SaveTo(&state);
  // The saved batch shares belong to a different number of workers.
  if (terms->job.workers() != terms_.job.workers()) state.clear_batch();
  absl::StatusOr<std::unique_ptr<CoordinatedJob>> job =
      Restore(options_, state, Return::kResume, now);
  if (job.ok()) (*job)->terms_.server_count = terms->server_count;
  return job;
}

absl::Status CoordinatedJob::Load(const CoordinatorState& state, absl::Duration now) {
  if (absl::Status status = members_.Restore(state, now); !status.ok()) return status;
  if (absl::Status status = work_.Restore(state); !status.ok()) return status;
  if (absl::Status status = CheckInHand(state); !status.ok()) return status;

  restored_ = true;
  phase_.Restore(state.phase(), state.revision(), absl::Seconds(state.running_seconds()), now);
  initializer_ = state.initializer();
  if (members_.accounting().count(initializer_) == 0) initializer_ = -1;
  initialized_ = state.initialized();
  initialization_ = state.initialization();
  stopped_ = state.stopped();
  resumed_checkpoint_ = state.resumed_checkpoint();
  server_addresses_.Restore(state);
  CheckpointSchedule::Memory checkpoints;
  checkpoints.last_number = state.last_checkpoint();
  checkpoints.kept.assign(state.kept_checkpoint().begin(), state.kept_checkpoint().end());
  checkpoints.status = state.checkpoint();
  schedule_.Restore(std::move(checkpoints));
  return absl::OkStatus();
}

absl::Status CoordinatedJob::CheckInHand(const CoordinatorState& state) const {
  for (const MemberState& member : state.member()) {
    if (member.live() && member.evaluating() != 0 &&
        !work_.has_evaluation_of(member.evaluating())) {
      return DamagedState("slot ", member.slot(), " evaluates epoch ", member.evaluating());
    }
  }
  // Leases of a dead holder were returned when it died.
  for (const DataLeasesState::Outstanding& out : state.leases().outstanding()) {
    if (!members_.IsLive(out.slot()) || !members_.IsLatest({out.slot(), out.incarnation()})) {
      return DamagedState("data lease ", out.id(), " is held by no live slot");
    }
  }
  return absl::OkStatus();
}

void CoordinatedJob::WaitForWorkers(absl::Duration now) {
  std::vector<SlotHolder> live;
  for (auto& [slot, member] : members_.accounting()) {
    // The cause of the nonfinite gradients may be fixed by now.
    member.set_quarantined(false);
    if (members_.IsLive(slot)) live.push_back({slot, member.incarnation()});
  }
  for (const SlotHolder& holder : live) {
    EndIncarnation(holder, SlotAccounting::LEFT, "the job was stopped, and resumed later");
  }
  initializer_ = -1;
  terms_.server_count = 0;
  server_addresses_.Clear();
  if (!work_.Complete()) stopped_.clear();
  const bool is_over = work_.Complete() && phase() == JobStatus::DONE;
  phase_.Enter(is_over ? JobStatus::DONE : JobStatus::GATHERING, now);
}

void CoordinatedJob::End(absl::Duration now) {
  if (phase() == JobStatus::DONE) return;
  phase_.Enter(JobStatus::DONE, now);
  schedule_.End(/*one_more=*/true);
}

void CoordinatedJob::Advance(absl::Duration now) {
  if (phase() == JobStatus::GATHERING && members_.awaiting() >= terms_.job.workers()) {
    phase_.Enter(JobStatus::INITIALIZING, now);
  }
  if (phase() == JobStatus::INITIALIZING && initialized_) {
    schedule_.Start(now, members_.MostSteps());
    if (ModelIsKept()) phase_.Enter(JobStatus::RUNNING, now);
  }
  if (phase() == JobStatus::INITIALIZING && !initialized_) ChooseInitializer();
  if (phase() == JobStatus::RUNNING && work_.Complete()) End(now);
  phase_.Publish();
}

void CoordinatedJob::ChooseInitializer() {
  if (members_.Awaits(initializer_)) return;
  initializer_ = members_.FirstAwaiting();
  if (initializer_ != -1) Changed();
}

std::optional<AwaitStartReply> CoordinatedJob::GetStart(SlotId slot) const {
  if (published_phase() == JobStatus::DONE) return StartReply(AwaitStartReply::DONE);
  if (published_phase() == JobStatus::RUNNING) return StartReply(AwaitStartReply::START);
  if (published_phase() == JobStatus::INITIALIZING && !initialized_ && initializer_ == slot) {
    return StartReply(AwaitStartReply::INITIALIZE, initialization_);
  }
  return std::nullopt;
}

std::optional<NextWorkReply> CoordinatedJob::GetNextWork(MemberState& member) {
  NextWorkReply reply;
  if (published_phase() == JobStatus::DONE) {
    member.set_state(SlotAccounting::FINISHED);
    reply.set_done(true);
  } else if (!stopped_.empty() || !work_.HandOut(&member, &reply)) {
    // After an early stop, the slot only waits for the end of the job.
    member.set_state(SlotAccounting::WAITING);
    if (member.idle() || work_.AwaitsStep(member.slot())) return std::nullopt;
    reply.set_go_idle(true);
  }
  Changed();
  *member.mutable_answer() = reply;
  return reply;
}

bool CoordinatedJob::TakeInitialized(SlotId slot) {
  if (phase() != JobStatus::INITIALIZING || initializer_ != slot) return false;
  initialized_ = true;
  ChangedVitally();
  return true;
}

absl::Status CoordinatedJob::CheckUpload(const MemberState& member, ModelFile file) const {
  const NextWorkReply& told = member.answer();
  bool asked = member.evaluating() != 0 && told.has_keep_model();
  if (file == MODEL_FINAL) asked = asked && told.keep_model().final();
  if (file == MODEL_CONSTANTS) {
    asked = phase() == JobStatus::INITIALIZING && !initialized_ && initializer_ == member.slot();
  }
  if (asked) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("slot ", member.slot(), " was not asked to upload ", ModelFile_Name(file), ": ",
                   file == MODEL_CONSTANTS ? "it does not initialise the model"
                                           : "none of its evaluations asks for the file"));
}

void CoordinatedJob::TakeEvaluation(EvaluationResult result, MemberState& member,
                                    absl::Duration now) {
  ChangedVitally();
  result.set_at_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  work_.Report(result);
  member.set_evaluating(0);
}

absl::Status CoordinatedJob::CheckFinite(const NextWorkRequest& request, absl::Duration now) {
  const TrainingSpec& training = terms_.job.training();
  const uint32_t in_a_row = request.figures().nonfinite_in_a_row();
  const bool stops = training.nonfinite() == STOP_JOB &&
                     (in_a_row > 0 || request.figures().skipped_nonfinite() > 0);
  const bool quarantined = training.quarantine_after() > 0 &&
                           in_a_row >= static_cast<uint32_t>(training.quarantine_after());
  if (!stops && !quarantined) return absl::OkStatus();

  const SlotHolder offender{request.slot(), request.incarnation()};
  std::string reason = absl::StrCat(std::max<uint64_t>(in_a_row, stops ? 1 : 0),
                                    in_a_row > 1 ? " gradients in a row" : " gradient",
                                    in_a_row > 1 ? " were" : " was", " not finite");
  if (stops) {
    stopped_ =
        absl::StrCat("slot ", offender.slot, ": ", reason, ", and training.nonfinite is STOP_JOB");
    reason = absl::StrCat(reason, ", which ended the job");
  }
  MemberState& member = members_.accounting().at(offender.slot);
  JobMembers::AddFigures(request.figures(), &member);
  const StepFigures& all = member.figures();
  const uint64_t steps = all.pushes() + all.skipped_nonfinite();
  const uint64_t step = steps - std::min<uint64_t>(steps, in_a_row) + 1;
  member.set_quarantined(quarantined);
  if (quarantined && members_.AllQuarantined()) {
    stopped_ = absl::StrCat("the gradients of all slots are not finite; those of slot ",
                            offender.slot, " from its step ", step, " on");
  }
  EndIncarnation(offender, SlotAccounting::LEFT, reason);
  if (!stopped_.empty()) End(now);
  return absl::AbortedError(
      absl::StrCat("slot ", offender.slot, " is removed from the job: ", reason,
                   "; a smaller optimizer.learning_rate or training.clip_norm may help"));
}

void CoordinatedJob::EndIncarnation(SlotHolder dead, SlotAccounting::State state,
                                    const std::string& reason) {
  Changed();
  members_.End(dead, state, reason);
  work_.Release(dead);
}

std::optional<CoordinatedJob::CheckpointPlan> CoordinatedJob::BeginCheckpoint(absl::Duration now) {
  // No checkpoint begins before the model is initialised, or while a slot initialises it again.
  if (!options_.has_directory || !durable() || !initialized_) return std::nullopt;
  if (!schedule_.Due(now, members_.MostSteps())) return std::nullopt;
  CheckpointPlan plan;
  plan.number = schedule_.Begin(now, members_.MostSteps());
  ChangedVitally();
  plan.state = Save(now);
  plan.keep = schedule_.KeepList(/*finite=*/true);
  plan.keep_if_nonfinite = schedule_.KeepList(/*finite=*/false);
  return plan;
}

absl::StatusOr<CheckpointStatus> CoordinatedJob::EndCheckpoint(
    const absl::StatusOr<CheckpointStatus>& outcome, absl::Duration now) {
  ChangedVitally();
  if (!outcome.ok()) {
    schedule_.Fail(outcome.status(), now);
    if (phase() == JobStatus::INITIALIZING && ++first_failures_ < kFirstTries) {
      // The checkpoint may have failed because a server lost the initial values. So a slot must
      // push them again.
      initialized_ = false;
      ++initialization_;
    }
    return outcome;
  }
  CheckpointStatus status = *outcome;
  status.set_at_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  schedule_.Succeed(status, now);
  status = schedule_.memory().status;
  status.set_enabled(true);
  return status;
}

bool CoordinatedJob::ModelIsKept() const {
  // Servers cannot recover before the first checkpoint exists.
  const bool needed = options_.has_directory && schedule_.automatic() &&
                      terms_.job.durability().level() == DurabilitySpec::CHECKPOINT;
  return !needed || !schedule_.memory().kept.empty() || first_failures_ >= kFirstTries;
}

bool CoordinatedJob::wants_last_checkpoint() const {
  return options_.has_directory && durable() && phase() >= JobStatus::RUNNING &&
         !schedule_.complete();
}

bool CoordinatedJob::durable() const {
  return terms_.job.durability().level() != DurabilitySpec::NONE;
}

CoordinatorState CoordinatedJob::Save(absl::Duration now) const {
  CoordinatorState state;
  state.set_job_id(id_);
  terms_.SaveTo(&state);
  server_addresses_.SaveTo(&state);
  state.set_phase(phase());
  state.set_running_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  const CheckpointSchedule::Memory& checkpoints = schedule_.memory();
  state.set_last_checkpoint(checkpoints.last_number);
  state.set_coordinator_incarnation(options_.coordinator_incarnation);
  state.set_revision(revision());
  state.set_initializer(initializer_);
  members_.SaveTo(&state);
  work_.SaveTo(&state);
  *state.mutable_checkpoint() = checkpoints.status;
  for (const uint64_t kept : checkpoints.kept) state.add_kept_checkpoint(kept);
  state.set_resumed_checkpoint(resumed_checkpoint_);
  state.set_stopped(stopped_);
  state.set_initialized(initialized_);
  state.set_initialization(initialization_);
  state.set_owes_last_checkpoint(schedule_.owes_last());
  return state;
}

JobStatus CoordinatedJob::Describe(absl::Duration now) const {
  JobStatus status;
  status.set_coordinator_incarnation(options_.coordinator_incarnation);
  status.set_phase(published_phase());
  status.set_job_id(id_);
  *status.mutable_job() = terms_.job;
  status.set_running_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  status.set_parameters(terms_.layout.trained_size());
  status.set_model(terms_.model);
  status.set_data(terms_.data);
  for (const ServerAddress& place : server_addresses_.all()) *status.add_server() = place;
  members_.Describe(&status);
  work_.Describe(&status);
  status.set_epochs_without_best(work_.stopped_after());
  *status.mutable_checkpoint() = schedule_.memory().status;
  status.mutable_checkpoint()->set_enabled(options_.has_directory && durable());
  status.set_resumed_checkpoint(resumed_checkpoint_);
  status.set_stopped(stopped_);
  return status;
}

}  // namespace torchps
