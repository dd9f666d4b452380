#include "server/coordinator/job_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/split_mix64.h"
#include "job/job_spec.h"
#include "server/coordinator/saved_state.h"
#include "server/coordinator/slots/slot_registry.h"

namespace torchps {
namespace {

// Incarnations that may have been given out after the state was saved (a power cut takes the last
// moments before it) are never given out again.
constexpr Incarnation kIncarnationGap = 1 << 20;
// The same of a copy of the state, behind which there may have been many lives.
constexpr Incarnation kCopyGap = kIncarnationGap << 10;

// Training does not wait longer for its first checkpoint: a disk that is full does not stop a job.
constexpr int kFirstTries = 2;

uint64_t DrawNonZero(uint64_t seed, int draw) {
  uint64_t state = seed;
  uint64_t value = 0;
  for (int i = 0; i < draw || value == 0; ++i) value = SplitMix64(state);
  return value;
}

AwaitStartReply StartReply(AwaitStartReply::Action action) {
  AwaitStartReply reply;
  reply.set_action(action);
  return reply;
}

}  // namespace

JobCoordinator::JobCoordinator(Options options)
    : has_directory_(options.has_directory),
      boot_id_(DrawNonZero(options.seed, 1)),
      // Far from 0 and from other jobs' incarnations, with room to rise.
      first_incarnation_((DrawNonZero(options.seed, 3) >> 32) + 1),
      job_id_(DrawNonZero(options.seed, 2)) {}

absl::StatusOr<JoinReply> JobCoordinator::Join(const JoinRequest& request, absl::Duration now) {
  Tick(now);
  absl::StatusOr<JobTerms> terms = JobTerms::FromJoin(request);
  if (!terms.ok()) return terms.status();
  // Before the job is taken over: a caller that is refused does not submit one.
  const absl::Status wish = SlotRegistry::CheckWish(request.wanted_slot(), request.nonce());
  if (!wish.ok()) return wish;
  if (phase_ == JobStatus::NO_JOB) {
    const absl::Status adopted = Adopt(*std::move(terms));
    if (!adopted.ok()) return adopted;
  } else {
    if (terms_->server_count == 0) {
      if (absl::Status resumed = GoOnAs(*terms, now); !resumed.ok()) return resumed;
    }
    if (absl::Status same = terms_->CheckSame(*terms); !same.ok()) return same;
  }
  if (const auto dead = members_->Predecessor(request); dead.has_value()) {
    Expire(*dead, SlotBooks::EXPIRED, "its process died");
    Settle(now);
  }
  const absl::StatusOr<JobMembers::Taken> taken = members_->Take(request, now);
  if (!taken.ok()) return taken.status();
  if (taken->is_new) ChangedVitally();
  places_.Tell(request, terms_->server_count);
  JoinReply reply;
  reply.set_slot(taken->holder.slot);
  reply.set_incarnation(taken->holder.incarnation);
  reply.set_job_id(job_id_);
  *reply.mutable_job() = terms_->job;
  reply.set_coordinator_life(boot_id_);
  reply.set_resumed_checkpoint(resumed_checkpoint_);
  return reply;
}

JobCoordinator::ParkedCall JobCoordinator::AwaitStart(const AwaitStartRequest& request,
                                                      absl::Duration now,
                                                      Reply<AwaitStartReply> reply) {
  const absl::StatusOr<MemberState*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) {
    return parked_.AnswerNow<AwaitStartReply>(std::move(reply), speaker.status());
  }
  MemberState& member = **speaker;
  if (!member.awaits_start()) Changed();
  member.set_awaits_start(true);
  if (request.initialized() && phase_ < JobStatus::RUNNING) {
    if (phase_ != JobStatus::INITIALIZING || initializer_ != request.slot()) {
      const std::string what = absl::StrCat(
          "slot ", request.slot(), " was not asked to initialise the model, but says it has");
      // By an earlier life it may have been.
      return parked_.AnswerNow<AwaitStartReply>(
          std::move(reply), restored_ ? absl::AbortedError(absl::StrCat(what, ": join again"))
                                      : absl::InvalidArgumentError(what));
    }
    initialized_ = true;
    ChangedVitally();
  }
  parked_.starts.Park(request.slot(), std::move(reply));
  Settle(now);
  return parked_.starts.Find(request.slot());
}

JobCoordinator::ParkedCall JobCoordinator::NextWork(const NextWorkRequest& request,
                                                    absl::Duration now,
                                                    Reply<NextWorkReply> reply) {
  const absl::StatusOr<MemberState*> speaker = Speaker(request.slot(), request.incarnation(), now);
  absl::Status status = speaker.status();
  if (status.ok()) status = TakeIn(request, **speaker, now);
  if (!status.ok()) return parked_.AnswerNow<NextWorkReply>(std::move(reply), status);
  const MemberState& member = **speaker;
  if (member.has_answer()) {
    return parked_.AnswerNow<NextWorkReply>(std::move(reply), member.answer());
  }
  parked_.works.Park(request.slot(), std::move(reply));
  Settle(now);
  return parked_.works.Find(request.slot());
}

absl::StatusOr<RenewSlotReply> JobCoordinator::RenewSlot(const RenewSlotRequest& request,
                                                         absl::Duration now) {
  const absl::StatusOr<MemberState*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) return speaker.status();
  RenewSlotReply reply;
  reply.set_cut_off(members_->Hear(request, now));
  return reply;
}

absl::StatusOr<ReportEvaluationReply> JobCoordinator::ReportEvaluation(
    const ReportEvaluationRequest& request, absl::Duration now) {
  const absl::StatusOr<MemberState*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) return speaker.status();
  MemberState& member = **speaker;
  const int epoch = request.result().epoch();
  if (work_->WasReportedBy(request.slot(), epoch)) return ReportEvaluationReply();
  if (epoch == 0 || member.evaluating() != epoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", request.slot(), " was not asked to evaluate epoch ", epoch));
  }
  ChangedVitally();
  EvaluationResult result = request.result();
  result.set_at_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  work_->Report(result);
  member.set_evaluating(0);
  Settle(now);
  return ReportEvaluationReply();
}

absl::StatusOr<LeaveJobReply> JobCoordinator::LeaveJob(const LeaveJobRequest& request,
                                                       absl::Duration now) {
  const absl::StatusOr<MemberState*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) {
    // Gone already, by itself or by its lease: there is nothing left to leave.
    if (has_job() && members_->IsLatest({request.slot(), request.incarnation()})) {
      return LeaveJobReply();
    }
    return speaker.status();
  }
  const SlotHolder leaver{request.slot(), request.incarnation()};
  Expire(leaver, told_phase_ == JobStatus::DONE ? SlotBooks::FINISHED : SlotBooks::LEFT,
         request.reason());
  Settle(now);
  return LeaveJobReply();
}

void JobCoordinator::Tick(absl::Duration now) {
  if (phase_ == JobStatus::NO_JOB) return;
  const std::vector<SlotHolder> expired = members_->Expire(now);
  for (const SlotHolder& dead : expired) {
    Expire(dead, SlotBooks::EXPIRED, "its lease ran out");
    gone_.push_back({dead, places_.addresses()});
  }
  if (!expired.empty()) Settle(now);
}

void JobCoordinator::OnSynced(uint64_t revision, absl::Duration now) {
  synced_revision_ = std::max(synced_revision_, revision);
  if (told_phase_ != phase_) Settle(now);
}

absl::Status JobCoordinator::GoOnAs(const JobTerms& joiner, absl::Duration now) {
  absl::StatusOr<JobTerms> terms = terms_->GoOnAs(joiner);
  if (!terms.ok()) return terms.status();
  CoordinatorState state = Save(now);
  const int begun = state.leases().epoch_size();
  if (joiner.job.training().epochs() < begun) {
    return absl::FailedPreconditionError(
        absl::StrCat("training.epochs is ", joiner.job.training().epochs(), "; expected at least ",
                     begun, ", for so many have begun in the job that is resumed"));
  }
  // A job that has ended goes on where there is more to do by now, whatever ended it.
  terms->SaveTo(&state);
  const absl::Status taken = Restore(state, Return::kResume, now);
  if (!taken.ok()) return taken;
  terms_->server_count = terms->server_count;
  return absl::OkStatus();
}

absl::Status JobCoordinator::Adopt(JobTerms terms) {
  absl::Status completed = CompleteJobSpec(&terms.job, terms.train_samples);
  if (!completed.ok()) return completed;
  Build(std::move(terms), first_incarnation_);
  Enter(JobStatus::GATHERING);
  told_phase_ = JobStatus::GATHERING;
  return absl::OkStatus();
}

void JobCoordinator::Build(JobTerms terms, Incarnation first_incarnation) {
  SlotRegistry::Options slots;
  slots.lease = absl::Seconds(terms.job.membership().lease_seconds());
  slots.first_incarnation = first_incarnation;
  own_from_ = first_incarnation;
  members_ = std::make_unique<JobMembers>(slots);
  work_ = std::make_unique<JobWork>(terms, has_directory_);
  const DurabilitySpec& durability = terms.job.durability();
  CheckpointSchedule::Options checkpoints;
  checkpoints.interval = absl::Seconds(durability.checkpoint_seconds());
  checkpoints.steps = durability.checkpoint_steps();
  checkpoints.keep = durability.keep();
  schedule_ = std::make_unique<CheckpointSchedule>(checkpoints);
  terms_ = std::move(terms);
}

absl::StatusOr<MemberState*> JobCoordinator::Speaker(SlotId slot, Incarnation incarnation,
                                                     absl::Duration now) {
  if (phase_ == JobStatus::NO_JOB) {
    return absl::AbortedError(
        "no job has been submitted to this coordinator since it was started: join again");
  }
  Tick(now);
  return members_->Renew({slot, incarnation}, now);
}

absl::Status JobCoordinator::TakeIn(const NextWorkRequest& request, MemberState& member,
                                    absl::Duration now) {
  const auto refused = [&](const auto&... words) {
    const std::string what =
        absl::StrCat("NextWork call ", request.call(), " of slot ", request.slot(), words...);
    // Its latest state may have been lost with the power, and the worker is not to blame.
    if (restored_) return absl::AbortedError(absl::StrCat(what, ": join again"));
    return absl::InvalidArgumentError(what);
  };
  if (request.call() == member.call() && member.call() > 0) return absl::OkStatus();
  if (request.call() != member.call() + 1) return refused(" comes after call ", member.call());
  if (phase_ < JobStatus::RUNNING) {
    // The disk may have refused the state that had the start.
    if (restored_) return refused(" comes before the start, as far as is known here");
    return absl::FailedPreconditionError("the job has not started: AwaitStart comes first");
  }
  if (member.evaluating() != 0) {
    return refused(" comes before its evaluation of epoch ", member.evaluating());
  }
  const uint64_t finished = request.finished_lease();
  if (member.lease() != 0 && finished != member.lease()) {
    return refused(" hands in data lease ", finished, ", but it holds data lease ", member.lease());
  }
  if (absl::Status finite = CheckFinite(request, now); !finite.ok()) return finite;
  if (finished != 0) {
    const absl::Status outcome = work_->Finish(request, RunningTime(now));
    if (!outcome.ok()) return outcome;
  }
  if (request.figures().pushes() > 0 && request.figures().nonfinite_in_a_row() == 0) {
    member.set_quarantined(false);
  }
  Changed();
  JobMembers::AddFigures(request.figures(), &member);
  member.set_lease(0);
  member.set_call(request.call());
  member.set_idle(request.idle());
  member.clear_answer();
  return absl::OkStatus();
}

absl::Status JobCoordinator::CheckFinite(const NextWorkRequest& request, absl::Duration now) {
  const TrainingSpec& training = terms_->job.training();
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
  MemberState& member = members_->books().at(offender.slot);
  JobMembers::AddFigures(request.figures(), &member);
  const StepFigures& all = member.figures();
  const uint64_t steps = all.pushes() + all.skipped_nonfinite();
  const uint64_t step = steps - std::min<uint64_t>(steps, in_a_row) + 1;
  member.set_quarantined(quarantined);
  if (quarantined && members_->AllQuarantined()) {
    stopped_ = absl::StrCat("the gradients of every slot are not finite, of slot ", offender.slot,
                            " from its step ", step, " on");
  }
  Expire(offender, SlotBooks::LEFT, reason);
  if (!stopped_.empty()) EndJob(now);
  Settle(now);
  return absl::AbortedError(
      absl::StrCat("slot ", offender.slot, " is sent away: ", reason,
                   "; a smaller optimizer.learning_rate or training.clip_norm may help"));
}

void JobCoordinator::EndJob(absl::Duration now) {
  if (phase_ == JobStatus::DONE) return;
  Enter(JobStatus::DONE);
  ended_at_ = now;
  schedule_->End(/*one_more=*/true);
}

void JobCoordinator::Enter(JobStatus::Phase phase) {
  phase_ = phase;
  ChangedVitally();
  phase_revision_ = revision_;
}

void JobCoordinator::TellPhase() {
  const bool is_kept = has_directory_ && durable();
  if (!is_kept || synced_revision_ >= phase_revision_) told_phase_ = phase_;
}

void JobCoordinator::Expire(SlotHolder dead, SlotBooks::State state, const std::string& reason) {
  Changed();
  members_->End(dead, state, reason);
  work_->Release(dead);
  const absl::Status last_words = absl::AbortedError(
      absl::StrCat("incarnation ", dead.incarnation, " of slot ", dead.slot, " is over"));
  parked_.starts.Answer(dead.slot, last_words);
  parked_.works.Answer(dead.slot, last_words);
}

void JobCoordinator::Settle(absl::Duration now) {
  if (phase_ == JobStatus::GATHERING && members_->awaiting() >= terms_->job.workers()) {
    Enter(JobStatus::INITIALIZING);
  }
  if (phase_ == JobStatus::INITIALIZING && initialized_) {
    schedule_->Start(now, members_->MostSteps());
    if (ModelIsKept()) {
      Enter(JobStatus::RUNNING);
      started_at_ = now - ran_before_;
    }
  }
  if (phase_ == JobStatus::INITIALIZING && !initialized_) ChooseInitializer();
  if (phase_ == JobStatus::RUNNING && work_->Complete()) EndJob(now);
  TellPhase();
  for (auto& [slot, member] : members_->books()) {
    if (parked_.starts.Find(slot) != 0) {
      if (std::optional<AwaitStartReply> start = FindStart(slot)) {
        parked_.starts.Answer(slot, *start);
      }
    }
    if (parked_.works.Find(slot) != 0) {
      if (std::optional<NextWorkReply> work = FindWork(member)) {
        Changed();
        *member.mutable_answer() = *work;
        parked_.works.Answer(slot, *std::move(work));
      }
    }
  }
  if (told_phase_ == JobStatus::DONE && !parked_.statuses.empty()) {
    parked_.statuses.Answer(Describe(now));
  }
}

void JobCoordinator::ChooseInitializer() {
  if (members_->Awaits(initializer_)) return;
  initializer_ = members_->FirstAwaiting();
  if (initializer_ != -1) Changed();
}

std::optional<AwaitStartReply> JobCoordinator::FindStart(SlotId slot) const {
  if (told_phase_ == JobStatus::DONE) return StartReply(AwaitStartReply::DONE);
  if (told_phase_ == JobStatus::RUNNING) return StartReply(AwaitStartReply::START);
  if (told_phase_ == JobStatus::INITIALIZING && !initialized_ && initializer_ == slot) {
    return StartReply(AwaitStartReply::INITIALIZE);
  }
  return std::nullopt;
}

std::optional<NextWorkReply> JobCoordinator::FindWork(MemberState& member) {
  NextWorkReply reply;
  if (told_phase_ == JobStatus::DONE) {
    member.set_state(SlotBooks::FINISHED);
    reply.set_done(true);
    return reply;
  }
  // After a stop there is only the end to wait for.
  if (stopped_.empty() && work_->HandOut(&member, &reply)) return reply;
  member.set_state(SlotBooks::WAITING);
  if (member.idle()) return std::nullopt;
  reply.set_go_idle(true);
  return reply;
}

absl::Duration JobCoordinator::RunningTime(absl::Duration now) const {
  if (phase_ < JobStatus::RUNNING) return ran_before_;
  return (phase_ == JobStatus::DONE ? ended_at_ : now) - started_at_;
}

bool JobCoordinator::durable() const {
  return has_job() && terms_->job.durability().level() != DurabilitySpec::NONE;
}

bool JobCoordinator::wants_last_checkpoint() const {
  return has_directory_ && durable() && phase_ >= JobStatus::RUNNING && !schedule_->complete();
}

absl::StatusOr<RegisterServerReply> JobCoordinator::RegisterServer(
    const RegisterServerRequest& request, absl::Duration) {
  if (!has_job() || request.job_id() != job_id_) {
    return absl::FailedPreconditionError("the coordinator has another job, or none");
  }
  if (request.server_count() != terms_->server_count) {
    return absl::FailedPreconditionError(absl::StrCat("the running job has ", terms_->server_count,
                                                      " servers, this is one of ",
                                                      request.server_count()));
  }
  const absl::StatusOr<bool> changed = places_.Register(request.place(), terms_->server_count);
  if (!changed.ok()) return changed.status();
  if (*changed) Changed();
  return RegisterServerReply();
}

absl::StatusOr<LocateServersReply> JobCoordinator::LocateServers(const LocateServersRequest&,
                                                                 absl::Duration) {
  LocateServersReply reply;
  if (!has_job()) return reply;
  reply.set_job_id(job_id_);
  for (const ServerPlace& place : places_.all()) *reply.add_server() = place;
  return reply;
}

JobCoordinator::ParkedCall JobCoordinator::TakeCheckpoint(const TakeCheckpointRequest&,
                                                          absl::Duration now,
                                                          Reply<CheckpointStatus> reply) {
  Tick(now);
  std::string refused;
  if (!has_directory_) {
    refused = "server 0 has no --dir, so that nothing can be kept: start it with one";
  } else if (phase_ < JobStatus::RUNNING) {
    refused = "the job has not started: there is nothing to keep yet";
  } else if (!durable()) {
    refused = "the job's durability.level is NONE: it keeps no checkpoints";
  }
  if (!refused.empty()) {
    return parked_.AnswerNow<CheckpointStatus>(std::move(reply),
                                               absl::FailedPreconditionError(refused));
  }
  schedule_->Request();
  return parked_.for_next_checkpoint.Park(std::move(reply));
}

std::optional<JobCoordinator::CheckpointPlan> JobCoordinator::BeginCheckpoint(absl::Duration now) {
  // Not while the model is initialised anew.
  if (!has_directory_ || !durable() || !initialized_) return std::nullopt;
  if (!schedule_->Due(now, members_->MostSteps())) return std::nullopt;
  CheckpointPlan plan;
  plan.number = schedule_->Begin(now, members_->MostSteps());
  ChangedVitally();
  plan.state = Save(now);
  plan.keep = schedule_->KeepList(/*finite=*/true);
  plan.keep_if_nonfinite = schedule_->KeepList(/*finite=*/false);
  parked_.for_next_checkpoint.MoveTo(parked_.for_this_checkpoint);
  return plan;
}

void JobCoordinator::EndCheckpoint(const absl::StatusOr<CheckpointStatus>& outcome,
                                   absl::Duration now) {
  ChangedVitally();
  absl::StatusOr<CheckpointStatus> answer = outcome;
  if (outcome.ok()) {
    answer->set_at_seconds(absl::ToDoubleSeconds(RunningTime(now)));
    schedule_->Succeed(*answer, now);
    answer = schedule_->memory().status;
    answer->set_enabled(true);
  } else {
    schedule_->Fail(outcome.status(), now);
  }
  parked_.for_this_checkpoint.Answer(answer);
  if (phase_ == JobStatus::INITIALIZING && !outcome.ok() && ++first_failures_ < kFirstTries) {
    // A server may have lost its initial values with its process: they are pushed once more.
    initialized_ = false;
  }
  Settle(now);
}

bool JobCoordinator::ModelIsKept() const {
  // No server could come back before there is a checkpoint to come back to.
  const bool needed = has_directory_ && schedule_->automatic() &&
                      terms_->job.durability().level() == DurabilitySpec::CHECKPOINT;
  return !needed || !schedule_->memory().kept.empty() || first_failures_ >= kFirstTries;
}

CoordinatorState JobCoordinator::Save(absl::Duration now) const {
  CoordinatorState state;
  state.set_job_id(job_id_);
  terms_->SaveTo(&state);
  places_.SaveTo(&state);
  state.set_phase(phase_);
  state.set_running_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  const CheckpointSchedule::Memory& checkpoints = schedule_->memory();
  state.set_last_checkpoint(checkpoints.last_number);
  state.set_coordinator_life(boot_id_);
  state.set_revision(revision_);
  state.set_initializer(initializer_);
  members_->SaveTo(&state);
  work_->SaveTo(&state);
  *state.mutable_checkpoint() = checkpoints.status;
  for (const uint64_t kept : checkpoints.kept) state.add_kept_checkpoint(kept);
  state.set_resumed_checkpoint(resumed_checkpoint_);
  state.set_stopped(stopped_);
  state.set_initialized(initialized_);
  return state;
}

absl::Status JobCoordinator::Restore(const CoordinatorState& state, Return how,
                                     absl::Duration now) {
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
  Build(*std::move(terms), state.next_incarnation() + gap);
  // Where this fails, it is still NO_JOB: the next Join builds everything anew.
  if (absl::Status status = members_->Restore(state, now); !status.ok()) return status;
  if (absl::Status status = work_->Restore(state); !status.ok()) return status;
  if (absl::Status status = CheckInHand(state); !status.ok()) return status;

  restored_ = true;
  job_id_ = state.job_id();
  revision_ = state.revision();
  ChangedVitally();
  phase_ = state.phase();
  phase_revision_ = state.revision();
  // Until it is known to be synced.
  told_phase_ = JobStatus::GATHERING;
  initializer_ = state.initializer();
  if (members_->books().count(initializer_) == 0) initializer_ = -1;
  initialized_ = state.initialized();
  stopped_ = state.stopped();
  resumed_checkpoint_ = state.resumed_checkpoint();
  places_.Restore(state);
  CheckpointSchedule::Memory checkpoints;
  checkpoints.last_number = state.last_checkpoint();
  checkpoints.kept.assign(state.kept_checkpoint().begin(), state.kept_checkpoint().end());
  checkpoints.status = state.checkpoint();
  schedule_->Restore(std::move(checkpoints));

  const absl::Duration ran = absl::Seconds(state.running_seconds());
  if (how == Return::kResume) {
    FreeAllSlots();
    if (!work_->Complete()) stopped_.clear();
    Enter(work_->Complete() && phase_ == JobStatus::DONE ? JobStatus::DONE : JobStatus::GATHERING);
  }
  if (phase_ < JobStatus::RUNNING) {
    ran_before_ = ran;
  } else {
    started_at_ = now - ran;
    ended_at_ = now;
    schedule_->Start(now, members_->MostSteps());
    if (phase_ == JobStatus::DONE) schedule_->End(/*one_more=*/false);
  }
  Settle(now);
  return absl::OkStatus();
}

absl::Status JobCoordinator::CheckInHand(const CoordinatorState& state) const {
  for (const MemberState& member : state.member()) {
    if (member.live() && member.evaluating() != 0 &&
        !work_->has_evaluation_of(member.evaluating())) {
      return DamagedState("slot ", member.slot(), " evaluates epoch ", member.evaluating());
    }
  }
  // What a holder that is gone had out was given back when it went.
  for (const DataLeasesState::Outstanding& out : state.leases().outstanding()) {
    if (!members_->IsLive(out.slot()) || !members_->IsLatest({out.slot(), out.incarnation()})) {
      return DamagedState("data lease ", out.id(), " is held by no live slot");
    }
  }
  return absl::OkStatus();
}

void JobCoordinator::FreeAllSlots() {
  for (const auto& [slot, member] : members_->books()) {
    if (!members_->IsLive(slot)) continue;
    Expire({slot, member.incarnation()}, SlotBooks::LEFT, "the job was stopped, and resumed later");
  }
  initializer_ = -1;
  terms_->server_count = 0;
  places_.Clear();
}

JobCoordinator::ParkedCall JobCoordinator::GetJobStatus(const JobStatusRequest& request,
                                                        absl::Duration now,
                                                        Reply<JobStatus> reply) {
  Tick(now);
  if (!request.wait_until_done() || told_phase_ == JobStatus::DONE) {
    return parked_.AnswerNow<JobStatus>(std::move(reply), Describe(now));
  }
  return parked_.statuses.Park(std::move(reply));
}

JobStatus JobCoordinator::Describe(absl::Duration now) const {
  JobStatus status;
  status.set_coordinator_life(boot_id_);
  status.set_phase(told_phase_);
  if (phase_ == JobStatus::NO_JOB) return status;
  status.set_job_id(job_id_);
  *status.mutable_job() = terms_->job;
  status.set_running_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  status.set_parameters(terms_->layout.trained_size());
  status.set_model(terms_->model);
  status.set_data(terms_->data);
  for (const ServerPlace& place : places_.all()) *status.add_server() = place;
  members_->Describe(&status);
  work_->Describe(&status);
  status.set_epochs_without_best(work_->stopped_after());
  *status.mutable_checkpoint() = schedule_->memory().status;
  status.mutable_checkpoint()->set_enabled(has_directory_ && durable());
  status.set_resumed_checkpoint(resumed_checkpoint_);
  status.set_stopped(stopped_);
  return status;
}

}  // namespace torchps
