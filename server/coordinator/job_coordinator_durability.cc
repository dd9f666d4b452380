// What of JobCoordinator outlives its process: checkpoints, and its own state saved and restored.

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/job_spec.h"
#include "server/coordinator/job_coordinator.h"
#include "wire/layout_codec.h"

namespace torchps {
namespace {

// Incarnations that may have been given out after the state was saved (a power cut takes the last
// moments before it) are never given out again.
constexpr Incarnation kIncarnationGap = 1 << 20;

// Training does not wait longer for its first checkpoint: a disk that is full does not stop a job.
constexpr int kFirstTries = 2;

template <typename... Words>
absl::Status Damaged(const Words&... words) {
  return absl::DataLossError(
      absl::StrCat("the saved state of the coordinator makes no sense: ", words...));
}

}  // namespace

bool JobCoordinator::durable() const {
  return has_job() && terms_->job.durability().level() != DurabilitySpec::NONE;
}

bool JobCoordinator::wants_last_checkpoint() const {
  return has_directory_ && durable() && phase_ >= JobStatus::RUNNING && !schedule_->complete();
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
    ready_.Add<CheckpointStatus>(std::move(reply), absl::FailedPreconditionError(refused));
    return 0;
  }
  schedule_->Request();
  parked_for_next_.push_back({++last_parked_, std::move(reply)});
  return last_parked_;
}

std::optional<JobCoordinator::CheckpointPlan> JobCoordinator::BeginCheckpoint(absl::Duration now) {
  // Not while the model is initialised anew.
  if (!has_directory_ || !durable() || !initialized_) return std::nullopt;
  if (!schedule_->Due(now, MostSteps())) return std::nullopt;
  CheckpointPlan plan;
  plan.number = schedule_->Begin(now, MostSteps());
  ChangedVitally();
  plan.state = Save(now);
  plan.keep = schedule_->KeepList();
  std::move(parked_for_next_.begin(), parked_for_next_.end(), std::back_inserter(parked_for_this_));
  parked_for_next_.clear();
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
  for (ParkedReply<CheckpointStatus>& parked : std::exchange(parked_for_this_, {})) {
    ready_.Add<CheckpointStatus>(std::move(parked.reply), answer);
  }
  if (phase_ == JobStatus::INITIALIZING && !outcome.ok() && ++first_failures_ < kFirstTries) {
    // A server may have lost its initial values with its process: they are pushed once more.
    initialized_ = false;
  }
  Settle(now);
}

bool JobCoordinator::ModelIsKept() const {
  // Nobody could come back before there is something to come back to.
  const bool needed = has_directory_ && schedule_->automatic() &&
                      terms_->job.durability().level() == DurabilitySpec::CHECKPOINT;
  return !needed || !schedule_->memory().kept.empty() || first_failures_ >= kFirstTries;
}

int64_t JobCoordinator::MostSteps() const {
  uint64_t most = 0;
  for (const auto& [slot, member] : members_) most = std::max(most, member.figures.pushes());
  return static_cast<int64_t>(most);
}

CoordinatorState JobCoordinator::Save(absl::Duration now) const {
  CoordinatorState state;
  state.set_job_id(job_id_);
  *state.mutable_job() = terms_->job;
  *state.mutable_layout() = EncodeLayout(terms_->layout);
  state.set_train_samples(terms_->train_samples);
  state.set_server_count(terms_->server_count);
  for (const std::string& address : addresses_) state.add_server_address(address);
  state.set_phase(phase_);
  state.set_running_seconds(absl::ToDoubleSeconds(RunningTime(now)));
  state.set_next_incarnation(registry_->next_incarnation());
  const CheckpointSchedule::Memory& checkpoints = schedule_->memory();
  state.set_last_checkpoint(checkpoints.last_number);
  state.set_coordinator_life(life_);
  state.set_revision(revision_);
  state.set_initializer(initializer_);
  for (const auto& [slot, member] : members_) {
    MemberState& saved = *state.add_member();
    saved.set_slot(slot);
    saved.set_incarnation(member.incarnation);
    saved.set_nonce(registry_->NonceOf({slot, member.incarnation}));
    saved.set_live(saved.nonce() != 0);
    saved.set_awaits_start(member.awaits_start);
    saved.set_call(member.call);
    saved.set_idle(member.idle);
    if (member.answer.has_value()) *saved.mutable_answer() = *member.answer;
    saved.set_lease(member.lease);
    saved.set_evaluating(member.evaluating);
    saved.set_host(member.host);
    saved.set_device(member.device);
    saved.set_state(member.state);
    *saved.mutable_figures() = member.figures;
    saved.set_epoch(member.epoch);
    saved.set_reason(member.reason);
  }
  *state.mutable_leases() = leases_->Save();
  evaluations_.SaveTo(&state);
  for (const auto& [epoch, figures] : epoch_figures_) {
    EpochFiguresState& saved = *state.add_epoch_figures();
    saved.set_epoch(epoch);
    saved.set_loss_sum(figures.loss_sum);
    saved.set_loss_samples(figures.loss_samples);
    saved.set_closed_at_seconds(absl::ToDoubleSeconds(figures.closed_at));
  }
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
      state.next_incarnation() >= ~uint64_t{0} - kIncarnationGap || state.server_count() < 0) {
    return Damaged("its numbers are out of range");
  }
  JobTerms terms;
  absl::StatusOr<JobSpec> job = NormalizeJobSpec(state.job());
  if (!job.ok()) return Damaged(job.status().message());
  absl::StatusOr<ModelLayout> layout = DecodeLayout(state.layout());
  if (!layout.ok()) return Damaged(layout.status().message());
  terms.job = *std::move(job);
  terms.layout = *std::move(layout);
  terms.train_samples = state.train_samples();
  terms.server_count = state.server_count();
  if (absl::Status status = CompleteJobSpec(&terms.job, terms.train_samples); !status.ok()) {
    return Damaged(status.message());
  }
  Build(std::move(terms), state.next_incarnation() + kIncarnationGap);
  absl::Status restored = leases_->Restore(state.leases());
  if (restored.ok()) restored = RestoreMembers(state, now);
  if (restored.ok()) restored = RestoreBooks(state);
  if (!restored.ok()) {
    // Still NO_JOB: the next Join builds everything anew.
    members_.clear();
    evaluations_ = Evaluations();
    epoch_figures_.clear();
    return restored;
  }

  restored_ = true;
  job_id_ = state.job_id();
  revision_ = state.revision();
  ChangedVitally();
  phase_ = state.phase();
  phase_revision_ = state.revision();
  // Until it is known to be synced.
  told_phase_ = JobStatus::GATHERING;
  initializer_ = state.initializer();
  if (members_.count(initializer_) == 0) initializer_ = -1;
  initialized_ = state.initialized();
  stopped_ = state.stopped();
  resumed_checkpoint_ = state.resumed_checkpoint();
  addresses_.assign(state.server_address().begin(), state.server_address().end());
  CheckpointSchedule::Memory checkpoints;
  checkpoints.last_number = state.last_checkpoint();
  checkpoints.kept.assign(state.kept_checkpoint().begin(), state.kept_checkpoint().end());
  checkpoints.status = state.checkpoint();
  schedule_->Restore(std::move(checkpoints));

  const absl::Duration ran = absl::Seconds(state.running_seconds());
  if (how == Return::kResume) {
    FreeAllSlots();
    Enter(phase_ == JobStatus::DONE ? JobStatus::DONE : JobStatus::GATHERING);
  }
  if (phase_ < JobStatus::RUNNING) {
    ran_before_ = ran;
  } else {
    started_at_ = now - ran;
    ended_at_ = now;
    schedule_->Start(now, MostSteps());
    if (phase_ == JobStatus::DONE) schedule_->End(/*one_more=*/false);
  }
  Settle(now);
  return absl::OkStatus();
}

absl::Status JobCoordinator::RestoreMembers(const CoordinatorState& state, absl::Duration now) {
  for (const MemberState& saved : state.member()) {
    if (saved.slot() < 0 || saved.slot() >= kMaxSlots || members_.count(saved.slot()) != 0) {
      return Damaged("there cannot be a slot ", saved.slot());
    }
    Member& member = members_[saved.slot()];
    member.incarnation = saved.incarnation();
    member.awaits_start = saved.awaits_start();
    member.call = saved.call();
    member.idle = saved.idle();
    if (saved.has_answer()) member.answer = saved.answer();
    member.lease = saved.lease();
    member.evaluating = saved.evaluating();
    member.host = saved.host();
    member.device = saved.device();
    member.state =
        SlotBooks::State_IsValid(saved.state()) ? saved.state() : SlotBooks::STATE_UNSPECIFIED;
    member.figures = saved.figures();
    member.epoch = saved.epoch();
    member.reason = saved.reason();
    if (!saved.live()) continue;
    const absl::Status status =
        registry_->Restore({saved.slot(), saved.incarnation()}, saved.nonce(), saved.host(), now);
    if (!status.ok()) return Damaged(status.message());
  }
  return absl::OkStatus();
}

absl::Status JobCoordinator::RestoreBooks(const CoordinatorState& state) {
  const auto is_epoch = [&](int epoch) {
    return epoch >= 1 && epoch <= state.leases().epoch_size();
  };
  for (const EvaluationState& saved : state.evaluation()) {
    if (!is_epoch(saved.epoch())) return Damaged("an evaluation of epoch ", saved.epoch());
    evaluations_.Restore(saved);
  }
  for (const EpochFiguresState& saved : state.epoch_figures()) {
    if (!is_epoch(saved.epoch())) return Damaged("figures of epoch ", saved.epoch());
    EpochFigures& figures = epoch_figures_[saved.epoch()];
    figures.loss_sum = saved.loss_sum();
    figures.loss_samples = saved.loss_samples();
    figures.closed_at = absl::Seconds(saved.closed_at_seconds());
  }
  for (const auto& [slot, member] : members_) {
    const Holder holder{slot, member.incarnation};
    if (!registry_->IsLive(holder) || member.evaluating == 0) continue;
    if (!evaluations_.has(member.evaluating)) {
      return Damaged("slot ", slot, " evaluates epoch ", member.evaluating);
    }
  }
  // What a holder that is gone had out was given back when it went.
  for (const DataLeasesState::Outstanding& out : state.leases().outstanding()) {
    if (!registry_->IsLive({out.slot(), out.incarnation()})) {
      return Damaged("data lease ", out.id(), " is held by nobody");
    }
  }
  return absl::OkStatus();
}

void JobCoordinator::FreeAllSlots() {
  for (auto& [slot, member] : members_) {
    const Holder holder{slot, member.incarnation};
    if (!registry_->IsLive(holder)) continue;
    registry_->Leave(holder);
    Bury(holder, SlotBooks::LEFT, "the job was stopped, and resumed later");
  }
  initializer_ = -1;
  terms_->server_count = 0;
  addresses_.clear();
}

}  // namespace torchps
