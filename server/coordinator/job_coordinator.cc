#include "server/coordinator/job_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/split_mix64.h"
#include "job/job_spec.h"

namespace torchps {
namespace {

// Longest host, device or reason that the books keep.
constexpr size_t kMaxTextBytes = 512;

// `text`, cut to kMaxTextBytes at the start of a UTF-8 character.
std::string Clipped(const std::string& text) {
  if (text.size() <= kMaxTextBytes) return text;
  size_t end = kMaxTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

uint64_t DrawNonZero(uint64_t seed, int draw) {
  uint64_t state = seed;
  uint64_t value = 0;
  for (int i = 0; i < draw || value == 0; ++i) value = SplitMix64(state);
  return value;
}

DataLeases::Options LeaseOptions(const JobTerms& terms) {
  const TrainingSpec& training = terms.job.training();
  DataLeases::Options options;
  options.samples = terms.train_samples;
  options.epochs = training.epochs();
  options.push_samples = int64_t{training.batch_size()} * training.accumulate();
  options.lease_samples = terms.job.consistency().mode() == ConsistencySpec::SYNC
                              ? options.push_samples
                              : int64_t{training.batch_size()} * training.lease_batches();
  options.max_pushes = training.max_pushes();
  return options;
}

void AddTo(StepFigures& sum, const StepFigures& more) {
  sum.set_samples(sum.samples() + more.samples());
  sum.set_pushes(sum.pushes() + more.pushes());
  sum.set_loss_sum(sum.loss_sum() + more.loss_sum());
  sum.set_compute_seconds(sum.compute_seconds() + more.compute_seconds());
  sum.set_push_seconds(sum.push_seconds() + more.push_seconds());
  sum.set_pull_seconds(sum.pull_seconds() + more.pull_seconds());
  sum.set_wait_seconds(sum.wait_seconds() + more.wait_seconds());
  sum.set_data_seconds(sum.data_seconds() + more.data_seconds());
  sum.set_other_seconds(sum.other_seconds() + more.other_seconds());
  sum.set_rejected_pushes(sum.rejected_pushes() + more.rejected_pushes());
  sum.set_skipped_nonfinite(sum.skipped_nonfinite() + more.skipped_nonfinite());
  sum.set_rolled_back_blocks(sum.rolled_back_blocks() + more.rolled_back_blocks());
  sum.set_rolled_back_pushes(sum.rolled_back_pushes() + more.rolled_back_pushes());
  sum.set_nonfinite_in_a_row(more.nonfinite_in_a_row());
}

AwaitStartReply StartReply(AwaitStartReply::Action action) {
  AwaitStartReply reply;
  reply.set_action(action);
  return reply;
}

}  // namespace

JobCoordinator::JobCoordinator(Options options)
    : has_directory_(options.has_directory),
      life_(DrawNonZero(options.seed, 1)),
      // Far from 0 and from other jobs' incarnations, with room to rise.
      first_incarnation_((DrawNonZero(options.seed, 3) >> 32) + 1),
      job_id_(DrawNonZero(options.seed, 2)) {}

absl::StatusOr<JoinReply> JobCoordinator::Join(const JoinRequest& request, absl::Duration now) {
  Tick(now);
  absl::StatusOr<JobTerms> terms = JobTerms::FromJoin(request);
  if (!terms.ok()) return terms.status();
  // Before the job is taken over: a caller who is refused does not submit one.
  const absl::Status wish = SlotRegistry::CheckWish(request.wanted_slot(), request.nonce());
  if (!wish.ok()) return wish;
  if (phase_ == JobStatus::NO_JOB) {
    const absl::Status adopted = Adopt(*std::move(terms));
    if (!adopted.ok()) return adopted;
  } else {
    // Of a job that was resumed, the first one to come says how many servers there are now.
    if (terms_->server_count == 0) terms_->server_count = terms->server_count;
    if (absl::Status same = terms_->CheckSame(*terms); !same.ok()) return same;
  }
  const std::string host = Clipped(request.host());
  const absl::StatusOr<Holder> holder =
      registry_->Take(request.wanted_slot(), request.nonce(), host, now);
  if (!holder.ok()) return holder.status();
  if (request.server_address_size() == terms_->server_count) {
    addresses_.assign(request.server_address().begin(), request.server_address().end());
  }

  Member& member = members_[holder->slot];
  if (member.incarnation != holder->incarnation) {
    ChangedVitally();
    // The figures of a slot are summed up over all who held it.
    StepFigures figures = std::move(member.figures);
    member = Member();
    member.incarnation = holder->incarnation;
    member.host = host;
    member.device = Clipped(request.device());
    member.state = SlotBooks::JOINED;
    member.figures = std::move(figures);
  }
  JoinReply reply;
  reply.set_slot(holder->slot);
  reply.set_incarnation(holder->incarnation);
  reply.set_job_id(job_id_);
  *reply.mutable_job() = terms_->job;
  reply.set_coordinator_life(life_);
  return reply;
}

JobCoordinator::ParkedCall JobCoordinator::AwaitStart(const AwaitStartRequest& request,
                                                      absl::Duration now,
                                                      Reply<AwaitStartReply> reply) {
  const absl::StatusOr<Member*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) {
    ready_.Add<AwaitStartReply>(std::move(reply), speaker.status());
    return 0;
  }
  Member& member = **speaker;
  if (!std::exchange(member.awaits_start, true)) Changed();
  if (request.initialized() && phase_ < JobStatus::RUNNING) {
    if (phase_ != JobStatus::INITIALIZING || initializer_ != request.slot()) {
      const std::string what = absl::StrCat(
          "slot ", request.slot(), " was not asked to initialise the model, but says it has");
      // By an earlier life it may have been.
      ready_.Add<AwaitStartReply>(std::move(reply),
                                  restored_ ? absl::AbortedError(absl::StrCat(what, ": join again"))
                                            : absl::InvalidArgumentError(what));
      return 0;
    }
    initialized_ = true;
    ChangedVitally();
  }
  Park(member.parked_start, std::move(reply));
  Settle(now);
  return member.parked_start.has_value() ? member.parked_start->id : 0;
}

JobCoordinator::ParkedCall JobCoordinator::NextWork(const NextWorkRequest& request,
                                                    absl::Duration now,
                                                    Reply<NextWorkReply> reply) {
  const absl::StatusOr<Member*> speaker = Speaker(request.slot(), request.incarnation(), now);
  absl::Status status = speaker.status();
  if (status.ok()) status = TakeIn(request, **speaker, now);
  if (!status.ok()) {
    ready_.Add<NextWorkReply>(std::move(reply), status);
    return 0;
  }
  Member& member = **speaker;
  if (member.answer.has_value()) {
    ready_.Add<NextWorkReply>(std::move(reply), *member.answer);
    return 0;
  }
  Park(member.parked_work, std::move(reply));
  Settle(now);
  return member.parked_work.has_value() ? member.parked_work->id : 0;
}

absl::StatusOr<RenewSlotReply> JobCoordinator::RenewSlot(const RenewSlotRequest& request,
                                                         absl::Duration now) {
  const absl::StatusOr<Member*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) return speaker.status();
  return RenewSlotReply();
}

absl::StatusOr<ReportEvaluationReply> JobCoordinator::ReportEvaluation(
    const ReportEvaluationRequest& request, absl::Duration now) {
  const absl::StatusOr<Member*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) return speaker.status();
  Member& member = **speaker;
  const int epoch = request.result().epoch();
  if (evaluations_.WasReportedBy(request.slot(), epoch)) return ReportEvaluationReply();
  if (epoch == 0 || member.evaluating != epoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", request.slot(), " was not asked to evaluate epoch ", epoch));
  }
  ChangedVitally();
  EvaluationResult result = request.result();
  result.set_at_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  evaluations_.Report(epoch, result);
  member.evaluating = 0;
  Settle(now);
  return ReportEvaluationReply();
}

absl::StatusOr<LeaveJobReply> JobCoordinator::LeaveJob(const LeaveJobRequest& request,
                                                       absl::Duration now) {
  const absl::StatusOr<Member*> speaker = Speaker(request.slot(), request.incarnation(), now);
  if (!speaker.ok()) {
    // Gone already, by itself or by its lease: there is nothing left to leave.
    const auto found = members_.find(request.slot());
    if (found != members_.end() && found->second.incarnation == request.incarnation()) {
      return LeaveJobReply();
    }
    return speaker.status();
  }
  const Holder leaver{request.slot(), request.incarnation()};
  registry_->Leave(leaver);
  Bury(leaver, told_phase_ == JobStatus::DONE ? SlotBooks::FINISHED : SlotBooks::LEFT,
       Clipped(request.reason()));
  Settle(now);
  return LeaveJobReply();
}

void JobCoordinator::Tick(absl::Duration now) {
  if (phase_ == JobStatus::NO_JOB) return;
  const std::vector<Holder> expired = registry_->Expire(now);
  for (const Holder& dead : expired) {
    Bury(dead, SlotBooks::EXPIRED, "its lease ran out");
  }
  if (!expired.empty()) Settle(now);
}

void JobCoordinator::OnSynced(uint64_t revision, absl::Duration now) {
  synced_revision_ = std::max(synced_revision_, revision);
  if (told_phase_ != phase_) Settle(now);
}

void JobCoordinator::CancelParked(ParkedCall call) {
  const auto drop_from = [call](auto& place) {
    if (place.has_value() && place->id == call) place.reset();
  };
  for (auto& [slot, member] : members_) {
    drop_from(member.parked_start);
    drop_from(member.parked_work);
  }
  const auto drop_among = [call](auto& parked) {
    parked.erase(std::remove_if(parked.begin(), parked.end(),
                                [call](const auto& one) { return one.id == call; }),
                 parked.end());
  };
  drop_among(parked_status_);
  drop_among(parked_for_this_);
  drop_among(parked_for_next_);
}

void JobCoordinator::AbandonParked(const absl::Status& status) {
  for (auto& [slot, member] : members_) {
    Answer<AwaitStartReply>(member.parked_start, status);
    Answer<NextWorkReply>(member.parked_work, status);
  }
  for (ParkedReply<JobStatus>& parked : std::exchange(parked_status_, {})) {
    ready_.Add<JobStatus>(std::move(parked.reply), status);
  }
  for (auto* const waiting : {&parked_for_this_, &parked_for_next_}) {
    for (ParkedReply<CheckpointStatus>& parked : std::exchange(*waiting, {})) {
      ready_.Add<CheckpointStatus>(std::move(parked.reply), status);
    }
  }
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
  registry_ = std::make_unique<SlotRegistry>(slots);
  leases_ = std::make_unique<DataLeases>(LeaseOptions(terms));
  const DurabilitySpec& durability = terms.job.durability();
  CheckpointSchedule::Options checkpoints;
  checkpoints.interval = absl::Seconds(durability.checkpoint_seconds());
  checkpoints.steps = durability.checkpoint_steps();
  checkpoints.keep = durability.keep();
  schedule_ = std::make_unique<CheckpointSchedule>(checkpoints);
  terms_ = std::move(terms);
}

absl::StatusOr<JobCoordinator::Member*> JobCoordinator::Speaker(SlotId slot,
                                                                Incarnation incarnation,
                                                                absl::Duration now) {
  if (phase_ == JobStatus::NO_JOB) {
    return absl::AbortedError(
        "no job has been submitted to this coordinator since it was started: join again");
  }
  Tick(now);
  if (absl::Status status = registry_->Renew({slot, incarnation}, now); !status.ok()) {
    return status;
  }
  return &members_.at(slot);
}

absl::Status JobCoordinator::TakeIn(const NextWorkRequest& request, Member& member,
                                    absl::Duration now) {
  const auto refused = [&](const auto&... words) {
    const std::string what =
        absl::StrCat("NextWork call ", request.call(), " of slot ", request.slot(), words...);
    // Its latest state may have been lost with the power, and the worker is not to blame.
    if (restored_) return absl::AbortedError(absl::StrCat(what, ": join again"));
    return absl::InvalidArgumentError(what);
  };
  if (request.call() == member.call && member.call > 0) return absl::OkStatus();
  if (request.call() != member.call + 1) return refused(" comes after call ", member.call);
  if (phase_ < JobStatus::RUNNING) {
    // The disk may have refused the state that had the start.
    if (restored_) return refused(" comes before the start, as far as is known here");
    return absl::FailedPreconditionError("the job has not started: AwaitStart comes first");
  }
  if (member.evaluating != 0) {
    return refused(" comes before its evaluation of epoch ", member.evaluating);
  }
  const uint64_t finished = request.finished_lease();
  if (member.lease != 0 && finished != member.lease) {
    return refused(" hands in data lease ", finished, ", but it holds data lease ", member.lease);
  }
  if (absl::Status finite = CheckFinite(request, now); !finite.ok()) return finite;
  if (finished != 0) {
    const absl::StatusOr<DataLeases::Finished> outcome =
        leases_->Finish(finished, {request.slot(), request.incarnation()});
    if (!outcome.ok()) return outcome.status();
    if (outcome->counted) {
      EpochFigures& figures = epoch_figures_[outcome->epoch];
      figures.loss_sum += request.figures().loss_sum();
      figures.loss_samples += request.figures().samples();
      if (outcome->closed_epoch) {
        figures.closed_at = RunningTime(now);
        if (terms_->job.training().evaluate()) evaluations_.Open(outcome->epoch, request.slot());
      }
    }
  }
  Changed();
  AddTo(member.figures, request.figures());
  member.lease = 0;
  member.call = request.call();
  member.idle = request.idle();
  member.answer.reset();
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

  const Holder offender{request.slot(), request.incarnation()};
  std::string reason = absl::StrCat(std::max<uint64_t>(in_a_row, stops ? 1 : 0),
                                    in_a_row > 1 ? " gradients in a row" : " gradient",
                                    in_a_row > 1 ? " were" : " was", " not finite");
  if (stops) {
    stopped_ =
        absl::StrCat("slot ", offender.slot, ": ", reason, ", and training.nonfinite is STOP_JOB");
    reason = absl::StrCat(reason, ", which ended the job");
  }
  AddTo(members_.at(offender.slot).figures, request.figures());
  registry_->Leave(offender);
  Bury(offender, SlotBooks::LEFT, reason);
  if (stops) EndJob(now);
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

void JobCoordinator::Bury(Holder dead, SlotBooks::State state, const std::string& reason) {
  Changed();
  leases_->Release(dead);
  evaluations_.Release(dead.slot);
  Member& member = members_.at(dead.slot);
  const absl::Status last_words = absl::AbortedError(
      absl::StrCat("incarnation ", dead.incarnation, " of slot ", dead.slot, " is over"));
  Answer<AwaitStartReply>(member.parked_start, last_words);
  Answer<NextWorkReply>(member.parked_work, last_words);
  member.lease = 0;
  member.evaluating = 0;
  if (member.state == SlotBooks::FINISHED) return;  // it knew that the job was done
  member.state = state;
  member.reason = reason;
}

void JobCoordinator::Settle(absl::Duration now) {
  if (phase_ == JobStatus::GATHERING && Gathered()) {
    Enter(JobStatus::INITIALIZING);
  }
  if (phase_ == JobStatus::INITIALIZING && initialized_) {
    schedule_->Start(now, MostSteps());
    if (ModelIsKept()) {
      Enter(JobStatus::RUNNING);
      started_at_ = now - ran_before_;
    }
  }
  if (phase_ == JobStatus::INITIALIZING && !initialized_) ChooseInitializer();
  if (phase_ == JobStatus::RUNNING && leases_->Complete() && evaluations_.AllReported())
    EndJob(now);
  TellPhase();
  for (auto& [slot, member] : members_) {
    if (member.parked_start.has_value()) {
      if (std::optional<AwaitStartReply> start = FindStart(slot)) {
        Answer<AwaitStartReply>(member.parked_start, *start);
      }
    }
    if (member.parked_work.has_value()) {
      if (std::optional<NextWorkReply> work = FindWork(slot, member)) {
        Changed();
        member.answer = *work;
        Answer<NextWorkReply>(member.parked_work, *std::move(work));
      }
    }
  }
  if (told_phase_ == JobStatus::DONE) {
    for (ParkedReply<JobStatus>& parked : std::exchange(parked_status_, {})) {
      ready_.Add<JobStatus>(std::move(parked.reply), Describe(now));
    }
  }
}

bool JobCoordinator::Gathered() const {
  int awaiting = 0;
  for (const auto& [slot, member] : members_) {
    if (Live(slot) && member.awaits_start) ++awaiting;
  }
  return awaiting >= terms_->job.workers();
}

void JobCoordinator::ChooseInitializer() {
  if (initializer_ != -1 && Live(initializer_) && members_.at(initializer_).awaits_start) return;
  initializer_ = -1;
  for (const auto& [slot, member] : members_) {
    if (!Live(slot) || !member.awaits_start) continue;
    Changed();
    initializer_ = slot;
    return;
  }
}

std::optional<AwaitStartReply> JobCoordinator::FindStart(SlotId slot) const {
  if (told_phase_ == JobStatus::DONE) return StartReply(AwaitStartReply::DONE);
  if (told_phase_ == JobStatus::RUNNING) return StartReply(AwaitStartReply::START);
  if (told_phase_ == JobStatus::INITIALIZING && !initialized_ && initializer_ == slot) {
    return StartReply(AwaitStartReply::INITIALIZE);
  }
  return std::nullopt;
}

std::optional<NextWorkReply> JobCoordinator::FindWork(SlotId slot, Member& member) {
  NextWorkReply reply;
  if (told_phase_ == JobStatus::DONE) {
    member.state = SlotBooks::FINISHED;
    reply.set_done(true);
    return reply;
  }
  // After a stop there is only the end to wait for.
  if (stopped_.empty() && HandOut(slot, member, &reply)) return reply;
  member.state = SlotBooks::WAITING;
  if (member.idle) return std::nullopt;
  reply.set_go_idle(true);
  return reply;
}

bool JobCoordinator::HandOut(SlotId slot, Member& member, NextWorkReply* reply) {
  if (const int epoch = evaluations_.TakeFor(slot); epoch > 0) {
    member.evaluating = epoch;
    member.state = SlotBooks::EVALUATING;
    reply->set_evaluate_epoch(epoch);
    return true;
  }
  const std::optional<DataLeases::Lease> lease = leases_->Take({slot, member.incarnation});
  if (!lease.has_value()) return false;
  member.lease = lease->id;
  member.epoch = lease->range.epoch;
  member.state = SlotBooks::TRAINING;
  DataLease& given = *reply->mutable_lease();
  given.set_id(lease->id);
  given.set_epoch(lease->range.epoch);
  given.set_begin(lease->range.begin);
  given.set_end(lease->range.end);
  given.set_reissued(lease->reissued);
  return true;
}

template <typename T>
void JobCoordinator::Park(ParkingPlace<T>& place, Reply<T> reply) {
  Answer<T>(place, absl::CancelledError("a repeat of this call has taken its place"));
  place = ParkedReply<T>{++last_parked_, std::move(reply)};
}

template <typename T>
void JobCoordinator::Answer(ParkingPlace<T>& place, absl::StatusOr<T> answer) {
  if (!place.has_value()) return;
  ready_.Add<T>(std::move(place->reply), std::move(answer));
  place.reset();
}

bool JobCoordinator::Live(SlotId slot) const {
  return registry_->IsLive({slot, members_.at(slot).incarnation});
}

absl::Duration JobCoordinator::RunningTime(absl::Duration now) const {
  if (phase_ < JobStatus::RUNNING) return ran_before_;
  return (phase_ == JobStatus::DONE ? ended_at_ : now) - started_at_;
}

}  // namespace torchps
