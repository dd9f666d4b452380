#include "torchps/server/coordinator/job_coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/hash.h"
#include "torchps/server/coordinator/job_members.h"
#include "torchps/server/coordinator/job_terms.h"
#include "torchps/server/coordinator/slot_registry.h"
#include "torchps/transport/evaluation_score.h"

namespace torchps {
namespace {

uint64_t DrawNonZero(uint64_t seed, int draw) {
  uint64_t state = seed;
  uint64_t value = 0;
  for (int i = 0; i < draw || value == 0; ++i) value = SplitMix64(state);
  return value;
}

}  // namespace

JobCoordinator::JobCoordinator(Options options)
    : job_options_{DrawNonZero(options.seed, 1), options.has_directory},
      // Random, so that the incarnations of two jobs differ with high probability. At most 2^32, so
      // that incarnations can rise.
      first_incarnation_((DrawNonZero(options.seed, 3) >> 32) + 1),
      job_id_(DrawNonZero(options.seed, 2)) {}

absl::StatusOr<JoinReply> JobCoordinator::Join(const JoinRequest& request, absl::Duration now) {
  Tick(now);
  absl::StatusOr<JobTerms> terms = JobTerms::FromJoin(request);
  if (!terms.ok()) return terms.status();
  // Checked first, so that a refused caller does not submit a job.
  const absl::Status wish = SlotRegistry::CheckWish(request.wanted_slot(), request.nonce());
  if (!wish.ok()) return wish;
  if (!has_job()) {
    absl::StatusOr<std::unique_ptr<CoordinatedJob>> begun =
        CoordinatedJob::Begin(job_options_, job_id_, *std::move(terms), first_incarnation_, now);
    if (!begun.ok()) return begun.status();
    job_ = *std::move(begun);
  } else {
    if (job_->awaits_terms()) {
      absl::StatusOr<std::unique_ptr<CoordinatedJob>> resumed = job_->ResumeWith(*terms, now);
      if (!resumed.ok()) return resumed.status();
      job_ = *std::move(resumed);
      Settle(now);
    }
    if (absl::Status same = job_->terms().CheckSame(*terms); !same.ok()) return same;
  }
  if (const auto dead = job_->members().Predecessor(request); dead.has_value()) {
    Expire(*dead, SlotAccounting::EXPIRED, "its process died");
    Settle(now);
  }
  const absl::StatusOr<JobMembers::Taken> taken = job_->members().Take(request, now);
  if (!taken.ok()) return taken.status();
  if (taken->is_new) job_->ChangedVitally();
  job_->server_addresses().CheckAndLearn(request, job_->terms().server_count);
  JoinReply reply;
  reply.set_slot(taken->holder.slot);
  reply.set_incarnation(taken->holder.incarnation);
  reply.set_job_id(job_->id());
  *reply.mutable_job() = job_->terms().job;
  reply.set_coordinator_incarnation(job_options_.coordinator_incarnation);
  reply.set_resumed_checkpoint(job_->resumed_checkpoint());
  return reply;
}

JobCoordinator::ParkedCall JobCoordinator::AwaitStart(const AwaitStartRequest& request,
                                                      absl::Duration now,
                                                      Reply<AwaitStartReply> reply) {
  const absl::StatusOr<MemberState*> caller =
      FindMember(request.slot(), request.incarnation(), now);
  if (!caller.ok()) {
    return parked_.AnswerNow<AwaitStartReply>(std::move(reply), caller.status());
  }
  MemberState& member = **caller;
  if (!member.awaits_start()) job_->Changed();
  member.set_awaits_start(true);
  // Claims for an earlier initialisation do not count, because those values were lost.
  const bool claims = request.initialized() && request.initialization() == job_->initialization();
  if (claims && job_->phase() < JobStatus::RUNNING && !job_->TakeInitialized(request.slot())) {
    const std::string what = absl::StrCat(
        "slot ", request.slot(), " was not asked to initialise the model, but reports that it did");
    // An earlier coordinator incarnation may have asked the slot.
    return parked_.AnswerNow<AwaitStartReply>(
        std::move(reply), job_->restored() ? absl::AbortedError(absl::StrCat(what, ": join again"))
                                           : absl::InvalidArgumentError(what));
  }
  parked_.starts.Park(request.slot(), std::move(reply));
  Settle(now);
  return parked_.starts.Find(request.slot());
}

JobCoordinator::ParkedCall JobCoordinator::NextWork(const NextWorkRequest& request,
                                                    absl::Duration now,
                                                    Reply<NextWorkReply> reply) {
  const absl::StatusOr<MemberState*> caller =
      FindMember(request.slot(), request.incarnation(), now);
  absl::Status status = caller.status();
  if (status.ok()) status = TakeIn(request, **caller, now);
  if (!status.ok()) return parked_.AnswerNow<NextWorkReply>(std::move(reply), status);
  const MemberState& member = **caller;
  if (member.has_answer()) {
    return parked_.AnswerNow<NextWorkReply>(std::move(reply), member.answer());
  }
  parked_.works.Park(request.slot(), std::move(reply));
  Settle(now);
  return parked_.works.Find(request.slot());
}

absl::StatusOr<RenewSlotReply> JobCoordinator::RenewSlot(const RenewSlotRequest& request,
                                                         absl::Duration now) {
  const absl::StatusOr<MemberState*> caller =
      FindMember(request.slot(), request.incarnation(), now);
  if (!caller.ok()) return caller.status();
  RenewSlotReply reply;
  reply.set_cut_off(job_->members().RecordRenewal(request, now));
  return reply;
}

absl::StatusOr<ReportEvaluationReply> JobCoordinator::ReportEvaluation(
    const ReportEvaluationRequest& request, absl::Duration now) {
  const absl::Status is_new = GetNewScore(request, now).status();
  if (absl::IsAlreadyExists(is_new)) return ReportEvaluationReply();
  if (!is_new.ok()) return is_new;
  job_->TakeEvaluation(request.result(), job_->members().accounting().at(request.slot()), now);
  Settle(now);
  return ReportEvaluationReply();
}

absl::StatusOr<std::optional<double>> JobCoordinator::GetNewScore(
    const ReportEvaluationRequest& request, absl::Duration now) {
  const absl::StatusOr<MemberState*> caller =
      FindMember(request.slot(), request.incarnation(), now);
  if (!caller.ok()) return caller.status();
  const int epoch = request.result().epoch();
  if (job_->work().WasReportedBy(request.slot(), epoch)) {
    return absl::AlreadyExistsError(absl::StrCat("epoch ", epoch, " is reported already"));
  }
  if (epoch == 0 || (*caller)->evaluating() != epoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", request.slot(), " was not asked to evaluate epoch ", epoch));
  }
  return GetScore(request.result(), job_->terms().job.training().best_by());
}

absl::StatusOr<std::shared_ptr<const ModelLimits>> JobCoordinator::AdmitUpload(
    const StoreModelRequest& request, absl::Duration now) {
  const absl::StatusOr<MemberState*> caller =
      FindMember(request.slot(), request.incarnation(), now);
  if (!caller.ok()) return caller.status();
  absl::Status asked = job_->CheckUpload(**caller, request.file());
  if (!asked.ok()) return asked;
  return job_->model_limits();
}

absl::StatusOr<LeaveJobReply> JobCoordinator::LeaveJob(const LeaveJobRequest& request,
                                                       absl::Duration now) {
  const absl::StatusOr<MemberState*> caller =
      FindMember(request.slot(), request.incarnation(), now);
  if (!caller.ok()) {
    // The slot already left or its lease expired, so this call succeeds.
    if (has_job() && job_->members().IsLatest({request.slot(), request.incarnation()})) {
      return LeaveJobReply();
    }
    return caller.status();
  }
  const SlotHolder leaver{request.slot(), request.incarnation()};
  Expire(
      leaver,
      job_->published_phase() == JobStatus::DONE ? SlotAccounting::FINISHED : SlotAccounting::LEFT,
      request.reason());
  Settle(now);
  return LeaveJobReply();
}

void JobCoordinator::Tick(absl::Duration now) {
  if (!has_job()) return;
  const std::vector<SlotHolder> expired = job_->members().Expire(now);
  for (const SlotHolder& dead : expired) {
    Expire(dead, SlotAccounting::EXPIRED, "its lease ran out");
    gone_.push_back({dead, job_->server_addresses().addresses()});
  }
  const bool waited_enough = job_->work().EndLongWaits(now);
  if (!expired.empty() || waited_enough) Settle(now);
}

void JobCoordinator::OnSynced(uint64_t revision, absl::Duration now) {
  if (!has_job()) return;
  job_->OnSynced(revision);
  if (job_->published_phase() != job_->phase()) Settle(now);
}

absl::StatusOr<MemberState*> JobCoordinator::FindMember(SlotId slot, Incarnation incarnation,
                                                        absl::Duration now) {
  if (!has_job()) {
    return absl::AbortedError(
        "no job has been submitted to this coordinator since it was started: join again");
  }
  Tick(now);
  return job_->members().Renew({slot, incarnation}, now);
}

absl::Status JobCoordinator::TakeIn(const NextWorkRequest& request, MemberState& member,
                                    absl::Duration now) {
  const auto refused = [&](const auto&... words) {
    const std::string what =
        absl::StrCat("NextWork call ", request.call(), " of slot ", request.slot(), words...);
    // The coordinator may have lost the latest state in a power failure, which is not the worker's
    // fault.
    if (job_->restored()) return absl::AbortedError(absl::StrCat(what, ": join again"));
    return absl::InvalidArgumentError(what);
  };
  if (request.call() == member.call() && member.call() > 0) return absl::OkStatus();
  if (request.call() != member.call() + 1) return refused(" comes after call ", member.call());
  if (job_->phase() < JobStatus::RUNNING) {
    // The restored state may be older than the start of the job, for example if it is a backup
    // copy.
    if (job_->restored())
      return refused(" comes before the start of the job, as far as this coordinator knows");
    return absl::FailedPreconditionError("the job has not started: call AwaitStart first");
  }
  if (member.evaluating() != 0) {
    return refused(" comes before its evaluation of epoch ", member.evaluating());
  }
  const uint64_t finished = request.finished_lease();
  if (member.lease() != 0 && finished != member.lease()) {
    return refused(" hands in data lease ", finished, ", but it holds data lease ", member.lease());
  }
  if (absl::Status finite = job_->CheckFinite(request, now); !finite.ok()) {
    NotifyEviction({request.slot(), request.incarnation()});
    Settle(now);
    return finite;
  }
  if (finished != 0) {
    const absl::Status outcome = job_->work().Finish(request, job_->RunningTime(now));
    if (!outcome.ok()) return outcome;
  }
  if (request.figures().pushes() > 0 && request.figures().nonfinite_in_a_row() == 0) {
    member.set_quarantined(false);
  }
  job_->Changed();
  JobMembers::AddFigures(request.figures(), &member);
  member.set_lease(0);
  member.set_call(request.call());
  member.set_idle(request.idle());
  member.clear_answer();
  return absl::OkStatus();
}

void JobCoordinator::Expire(SlotHolder dead, SlotAccounting::State state,
                            const std::string& reason) {
  job_->EndIncarnation(dead, state, reason);
  NotifyEviction(dead);
}

void JobCoordinator::NotifyEviction(SlotHolder dead) {
  const absl::Status last_words = absl::AbortedError(
      absl::StrCat("incarnation ", dead.incarnation, " of slot ", dead.slot, " has ended"));
  parked_.starts.Answer(dead.slot, last_words);
  parked_.works.Answer(dead.slot, last_words);
  ended_.push_back(dead.slot);
}

void JobCoordinator::Settle(absl::Duration now) {
  job_->Advance(now);
  for (const SlotId slot : parked_.starts.slots()) {
    if (std::optional<AwaitStartReply> start = job_->GetStart(slot)) {
      parked_.starts.Answer(slot, *start);
    }
  }
  for (const SlotId slot : parked_.works.slots()) {
    MemberState& member = job_->members().accounting().at(slot);
    if (std::optional<NextWorkReply> work = job_->GetNextWork(member)) {
      parked_.works.Answer(slot, *std::move(work));
    }
  }
  if (IsToldDone() && !parked_.statuses.empty()) parked_.statuses.Answer(Describe(now));
}

absl::StatusOr<RegisterServerReply> JobCoordinator::RegisterServer(
    const RegisterServerRequest& request, absl::Duration) {
  if (!has_job() || request.job_id() != job_->id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the coordinator has ",
        has_job() ? absl::StrCat("job '", job_->terms().job.name(), "', number ", job_->id())
                  : std::string("no job"),
        "; this server belongs to the job with number ", request.job_id()));
  }
  const int server_count = job_->terms().server_count;
  if (request.server_count() != server_count) {
    return absl::FailedPreconditionError(
        absl::StrCat("the running job has ", server_count,
                     " servers; this server belongs to a job with ", request.server_count()));
  }
  const absl::StatusOr<bool> changed =
      job_->server_addresses().Register(request.place(), server_count);
  if (!changed.ok()) return changed.status();
  if (*changed) job_->Changed();
  if (request.wants_checkpoint()) job_->HastenCheckpoint();
  return RegisterServerReply();
}

absl::StatusOr<LocateServersReply> JobCoordinator::LocateServers(const LocateServersRequest&,
                                                                 absl::Duration) {
  LocateServersReply reply;
  if (!has_job()) return reply;
  reply.set_job_id(job_->id());
  for (const ServerAddress& place : job_->server_addresses().all()) *reply.add_server() = place;
  return reply;
}

JobCoordinator::ParkedCall JobCoordinator::TakeCheckpoint(const TakeCheckpointRequest&,
                                                          absl::Duration now,
                                                          Reply<CheckpointStatus> reply) {
  Tick(now);
  std::string refused;
  if (!job_options_.has_directory) {
    refused = "server 0 has no --dir, so checkpoints cannot be saved: start it with --dir";
  } else if (!has_job() || job_->phase() < JobStatus::RUNNING) {
    refused = "the job has not started: there is nothing to save yet";
  } else if (!job_->durable()) {
    refused = "the job's durability.level is NONE: it saves no checkpoints";
  } else if (job_->awaits_terms()) {
    refused =
        "the job had ended before it was resumed, and no worker has joined yet: the checkpoint "
        "that it was resumed from is its last one";
  }
  if (!refused.empty()) {
    return parked_.AnswerNow<CheckpointStatus>(std::move(reply),
                                               absl::FailedPreconditionError(refused));
  }
  job_->RequestCheckpoint();
  return parked_.for_next_checkpoint.Park(std::move(reply));
}

std::optional<JobCoordinator::CheckpointPlan> JobCoordinator::BeginCheckpoint(absl::Duration now) {
  if (!has_job()) return std::nullopt;
  std::optional<CheckpointPlan> plan = job_->BeginCheckpoint(now);
  if (plan.has_value()) parked_.for_next_checkpoint.MoveTo(parked_.for_this_checkpoint);
  return plan;
}

void JobCoordinator::EndCheckpoint(const absl::StatusOr<CheckpointStatus>& outcome,
                                   absl::Duration now) {
  parked_.for_this_checkpoint.Answer(job_->EndCheckpoint(outcome, now));
  Settle(now);
}

absl::Status JobCoordinator::Restore(const CoordinatorState& state, Return how,
                                     absl::Duration now) {
  absl::StatusOr<std::unique_ptr<CoordinatedJob>> restored =
      CoordinatedJob::Restore(job_options_, state, how, now);
  if (!restored.ok()) return restored.status();
  job_ = *std::move(restored);
  Settle(now);
  return absl::OkStatus();
}

JobCoordinator::ParkedCall JobCoordinator::GetJobStatus(const JobStatusRequest& request,
                                                        absl::Duration now,
                                                        Reply<JobStatus> reply) {
  Tick(now);
  if (!request.wait_until_done() || IsToldDone()) {
    return parked_.AnswerNow<JobStatus>(std::move(reply), Describe(now));
  }
  return parked_.statuses.Park(std::move(reply));
}

JobStatus JobCoordinator::Describe(absl::Duration now) const {
  if (has_job()) return job_->Describe(now);
  JobStatus status;
  status.set_coordinator_incarnation(job_options_.coordinator_incarnation);
  status.set_phase(JobStatus::NO_JOB);
  return status;
}

}  // namespace torchps
