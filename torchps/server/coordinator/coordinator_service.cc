#include "torchps/server/coordinator/coordinator_service.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

JobCoordinator::Options PolicyOptions(const CoordinatorService::Options& options) {
  JobCoordinator::Options policy;
  policy.seed = options.seed;
  policy.has_directory = !options.directory.empty();
  return policy;
}

// Returns the log line after a restart or resume.
std::string Describe(const CoordinatorState& state, bool resumed) {
  int live = 0;
  for (const MemberState& member : state.member()) live += member.live() ? 1 : 0;
  if (!resumed) {
    return absl::StrCat("the coordinator has restarted: job '", state.job().name(),
                        "' continues with ", live, live == 1 ? " slot" : " slots");
  }
  return absl::StrCat("job '", state.job().name(), "' is resumed from ",
                      state.resumed_checkpoint() > 0
                          ? absl::StrCat("checkpoint ", state.resumed_checkpoint())
                          : std::string("its last state"),
                      " and waits for its workers");
}

// Returns the message that the last checkpoint is not finite, with a remedy. `finite` is the newest
// finite checkpoint, or 0.
std::string NotFinite(const CheckpointStatus& last, uint64_t finite) {
  return absl::StrCat(
      "checkpoint ", last.number(), " is not finite: ", last.nonfinite_blocks(),
      " of its blocks hold numbers that are infinite or NaN; ",
      finite > 0 && finite < last.number()
          ? absl::StrCat("checkpoint ", finite,
                         " is kept: to return to it, stop the job, move the ",
                         "later ones away, and start it with --resume")
          : std::string("no earlier one is left: start the job again, with a smaller "
                        "optimizer.learning_rate or with training.clip_norm"));
}

// Returns true if `response` contains an incarnation that this process assigned. A state from an
// earlier process does not cover it (JobCoordinator::GivesOut).
template <class Response>
bool NamesNewcomer(const JobCoordinator&, const absl::StatusOr<Response>&) {
  return false;
}
bool NamesNewcomer(const JobCoordinator& coordinator, const absl::StatusOr<JoinReply>& reply) {
  return reply.ok() && coordinator.GivesOut(reply->incarnation());
}

}  // namespace

CoordinatorService::CoordinatorService(Options options)
    : options_(std::move(options)),
      coordinator_(PolicyOptions(options_)),
      eviction_notifier_(options_.connect) {}

CoordinatorService::~CoordinatorService() { Stop(); }

void CoordinatorService::Listen(Poller* poller) {
  if (options_.resume && !options_.directory.empty()) {
    MutexLock lock(&mutex_);
    reader_ = std::make_unique<ResumeReader>(options_.files, options_.directory);
  }
  Arm(poller, &Service::RequestJoin, &JobCoordinator::Join);
  Arm(poller, &Service::RequestAwaitStart, &JobCoordinator::AwaitStart);
  Arm(poller, &Service::RequestNextWork, &JobCoordinator::NextWork);
  Arm(poller, &Service::RequestRenewSlot, &JobCoordinator::RenewSlot);
  ListenFor(poller, options_.admission, &service_, &Service::RequestReportEvaluation,
            [this](const auto& call) { ReportEvaluation(call); });
  ListenFor(poller, options_.admission, &service_, &Service::RequestStoreModel,
            [this](const auto& call) { StoreModel(call); });
  Arm(poller, &Service::RequestRegisterServer, &JobCoordinator::RegisterServer, Opens::kNo);
  Arm(poller, &Service::RequestLocateServers, &JobCoordinator::LocateServers, Opens::kNo);
  Arm(poller, &Service::RequestLeaveJob, &JobCoordinator::LeaveJob);
  Arm(poller, &Service::RequestTakeCheckpoint, &JobCoordinator::TakeCheckpoint);
  Arm(poller, &Service::RequestGetJobStatus, &JobCoordinator::GetJobStatus);
}

void CoordinatorService::Tick() {
  {
    MutexLock lock(&mutex_);
    if (!opened_) return;
  }
  Apply([this](JobCoordinator& coordinator, absl::Duration now) -> Answer {
    coordinator.Tick(now);
    std::optional<JobCoordinator::CheckpointPlan> plan = coordinator.BeginCheckpoint(now);
    if (!plan.has_value()) return nullptr;
    // The checkpoint's number must be stored before it is sent to a server.
    return [this, plan = *std::move(plan)](const StateWriter::Kept& kept) {
      if (kept.job.ok()) {
        conductor_->Start(plan);
      } else {
        OnCheckpoint(plan.number, kept.job);
      }
    };
  }).IgnoreError();
}

absl::Status CoordinatorService::TakeLastCheckpoint(absl::Duration timeout) {
  struct Waiting {
    Mutex mutex;
    CondVar answered;
    std::optional<absl::Status> outcome;
  };
  const auto waiting = std::make_shared<Waiting>();
  bool asked = false;
  {
    MutexLock lock(&mutex_);
    if (!opened_ || stopped_) return absl::OkStatus();
  }
  const absl::Status applied =
      Apply([&](JobCoordinator& coordinator, absl::Duration now) -> Answer {
        if (!coordinator.wants_last_checkpoint()) return nullptr;
        asked = true;
        coordinator.TakeCheckpoint(TakeCheckpointRequest(), now,
                                   [waiting](const absl::StatusOr<CheckpointStatus>& taken) {
                                     MutexLock lock(&waiting->mutex);
                                     waiting->outcome = taken.status();
                                     waiting->answered.SignalAll();
                                   });
        return nullptr;
      });
  if (!applied.ok() || !asked) return applied;
  Tick();
  const absl::Duration give_up = options_.clock->Now() + timeout;
  MutexLock lock(&waiting->mutex);
  while (!waiting->outcome.has_value()) {
    const absl::Duration left = give_up - options_.clock->Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the last checkpoint takes longer than ", absl::FormatDuration(timeout)));
    }
    waiting->answered.WaitFor(&waiting->mutex, left);
  }
  return *waiting->outcome;
}

void CoordinatorService::Stop() {
  std::unique_ptr<ResumeReader> reader;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
    std::swap(reader, reader_);
  }
  reader = nullptr;
  eviction_notifier_.Stop();
  // The conductor stops before the writer, so that the outcome of the last checkpoint is saved.
  if (conductor_ != nullptr) conductor_->Stop();
  std::vector<std::function<void()>> ready;
  {
    MutexLock lock(&mutex_);
    coordinator_.AbandonParked(CoordinatorIsShuttingDown());
    ready = coordinator_.TakeReady();
  }
  if (models_ != nullptr) models_->Stop();
  if (writer_ != nullptr) writer_->Stop();
  for (const std::function<void()>& give : ready) give();
}

template <class Owner, class Request, class Response>
void CoordinatorService::Arm(Poller* poller, RequestMethod<Owner, Request, Response> request_method,
                             absl::StatusOr<Response> (JobCoordinator::*method)(const Request&,
                                                                                absl::Duration),
                             Opens opens) {
  using Call = UnaryCall<Request, Response>;
  ListenFor(
      poller, options_.admission, &service_, request_method,
      [this, method, opens](const typename Call::Pointer& call) { AnswerBy(method, call, opens); });
}

template <class Request, class Response>
void CoordinatorService::AnswerBy(
    absl::StatusOr<Response> (JobCoordinator::*method)(const Request&, absl::Duration),
    const std::shared_ptr<UnaryCall<Request, Response>>& call, Opens opens) {
  const absl::Status applied = Apply(
      [&](JobCoordinator& coordinator, absl::Duration now) -> Answer {
        absl::StatusOr<Response> response = (coordinator.*method)(call->request(), now);
        const bool is_new = NamesNewcomer(coordinator, response);
        return [call, is_new, response = std::move(response)](const StateWriter::Kept& kept) {
          const absl::Status& needed = is_new ? kept.incarnations : kept.job;
          call->Respond(needed.ok() ? response : absl::StatusOr<Response>(needed));
        };
      },
      opens);
  if (!applied.ok()) call->Respond(applied);
}

template <class Owner, class Request, class Response>
void CoordinatorService::Arm(Poller* poller, RequestMethod<Owner, Request, Response> request_method,
                             JobCoordinator::ParkedCall (JobCoordinator::*method)(
                                 const Request&, absl::Duration, Reply<Response>)) {
  using Call = UnaryCall<Request, Response>;
  ListenFor(poller, options_.admission, &service_, request_method,
            [this, method](const typename Call::Pointer& call) {
              JobCoordinator::ParkedCall parked = 0;
              const absl::Status applied =
                  Apply([&](JobCoordinator& coordinator, absl::Duration now) -> Answer {
                    parked = (coordinator.*method)(
                        call->request(), now, [call](const absl::StatusOr<Response>& response) {
                          call->Respond(response);
                        });
                    return nullptr;
                  });
              if (!applied.ok()) call->Respond(applied);
              if (parked == 0) return;
              // CancelParked() ignores a call that was answered in the meantime.
              call->OnCancel([this, parked] {
                Apply([parked](JobCoordinator& coordinator, absl::Duration) -> Answer {
                  coordinator.CancelParked(parked);
                  return nullptr;
                }).IgnoreError();
              });
            });
}

void CoordinatorService::StoreModel(
    const UnaryCall<StoreModelRequest, StoreModelReply>::Pointer& call) {
  absl::Status status = absl::FailedPreconditionError(
      "server 0 has no --dir, so models cannot be saved: start it with --dir");
  const absl::Status applied =
      Apply([&](JobCoordinator& coordinator, absl::Duration now) -> Answer {
        if (models_ == nullptr) return nullptr;
        const auto limits = coordinator.AdmitUpload(call->request(), now);
        status = limits.status();
        if (status.ok()) {
          // The call owns the piece.
          models_->Receive({call, &call->request()}, *limits,
                           [call](const auto& reply) { call->Respond(reply); });
        }
        return nullptr;
      });
  if (!applied.ok()) status = applied;
  if (!status.ok()) call->Respond(status);
}

void CoordinatorService::ReportEvaluation(
    const UnaryCall<ReportEvaluationRequest, ReportEvaluationReply>::Pointer& call) {
  bool publishes = false;
  const absl::Status applied =
      Apply([&](JobCoordinator& coordinator, absl::Duration now) -> Answer {
        const auto score = coordinator.GetNewScore(call->request(), now);
        publishes = models_ != nullptr && score.ok();
        if (!publishes) return nullptr;
        // The model is published first. If this process dies in between, the worker repeats the
        // report.
        models_->PublishBest(call->request().slot(), *score, [this, call](absl::Status status) {
          if (!status.ok() && status != CoordinatorIsShuttingDown()) {
            options_.log(absl::StrCat("best.safetensors may be that of an earlier epoch: ",
                                      status.message()));
          }
          AnswerBy(&JobCoordinator::ReportEvaluation, call);
        });
        return nullptr;
      });
  if (!applied.ok()) {
    call->Respond(applied);
  } else if (!publishes) {
    AnswerBy(&JobCoordinator::ReportEvaluation, call);
  }
}

absl::Status CoordinatorService::Apply(const Change& change, Opens opens) {
  Made made;
  {
    MutexLock lock(&mutex_);
    // Checked under mutex_, so that Stop() answers every call that parks.
    if (stopped_) return CoordinatorIsShuttingDown();
    if (!opened_ && opens == Opens::kNo) {
      return absl::UnavailableError("this server has not been asked to coordinate a job yet");
    }
    if (!opened_) {
      if (absl::Status status = Open(); !status.ok()) return status;
    }
    made = Make(change);
  }
  Give(std::move(made));
  return absl::OkStatus();
}

CoordinatorService::Made CoordinatorService::Make(const Change& change) {
  Made made;
  // The clock is read under mutex_, so that the coordinator's time never decreases.
  Answer own = change(coordinator_, options_.clock->Now());
  // Parked calls are answered even if the state could not be saved now (Kept). AwaitStart and
  // NextWork come from workers with a slot, and a worker gets a slot only after the job was saved.
  // The other parked calls only ask for the status or a checkpoint.
  for (std::function<void()>& give : coordinator_.TakeReady()) {
    made.ready.push_back([give = std::move(give)](const StateWriter::Kept&) { give(); });
  }
  for (EvictedSlot& gone : coordinator_.TakeGone()) {
    made.ready.push_back([this, gone = std::move(gone)](const StateWriter::Kept&) {
      eviction_notifier_.Notify(gone);
    });
  }
  for (const SlotId slot : coordinator_.TakeEnded()) {
    if (models_ != nullptr) models_->Forget(slot);
  }
  if (own != nullptr) made.ready.push_back(std::move(own));
  made.revision = coordinator_.revision();
  made.vital_revision = coordinator_.vital_revision();
  made.stored = writer_ != nullptr && coordinator_.durable();
  return made;
}

void CoordinatorService::Give(Made made) {
  if (made.stored) {
    writer_->Hold(made.revision, made.vital_revision, std::move(made.ready));
  } else {
    for (const Answer& give : made.ready) give(StateWriter::Kept());
  }
}

void CoordinatorService::MakeAnyhow(const Change& change) {
  Made made;
  {
    MutexLock lock(&mutex_);
    made = Make(change);
  }
  Give(std::move(made));
}

absl::StatusOr<std::optional<CoordinatorState>> CoordinatorService::FindState() {
  if (!options_.resume) {
    absl::StatusOr<std::unique_ptr<CoordinatorStore>> store =
        CoordinatorStore::Open(options_.files, options_.directory);
    if (!store.ok()) return store.status();
    std::string damage;
    absl::StatusOr<std::optional<CoordinatorState>> latest = (*store)->Load(&damage);
    if (latest.ok()) store_ = *std::move(store);
    if (!damage.empty()) options_.log(damage);
    state_was_damaged_ = !damage.empty();
    return latest;
  }
  if (reader_ == nullptr) {
    // The last attempt failed. Read again, because the cause may be fixed by now.
    reader_ = std::make_unique<ResumeReader>(options_.files, options_.directory);
  }
  std::optional<absl::StatusOr<ResumeReader::Found>> found = reader_->Take();
  if (!found.has_value()) {
    const std::string what = reader_->Describe();
    return BusyError(absl::StrCat("the job is being resumed: the coordinator ", what), what);
  }
  reader_ = nullptr;
  if (!found->ok()) return found->status();
  for (const std::string& reason : (*found)->resumed.passed_over) options_.log(reason);
  store_ = std::move((*found)->store);
  return std::optional<CoordinatorState>(std::move((*found)->resumed.state));
}

absl::Status CoordinatorService::Open() {
  if (options_.directory.empty()) {
    opened_ = true;
    return absl::OkStatus();
  }
  const absl::StatusOr<std::optional<CoordinatorState>> state = FindState();
  if (!state.ok()) return state.status();
  if (state->has_value()) {
    JobCoordinator::Return how = JobCoordinator::Return::kInPlace;
    if (options_.from_copy || state_was_damaged_) how = JobCoordinator::Return::kFromCopy;
    if (options_.resume) how = JobCoordinator::Return::kResume;
    const absl::Status restored = coordinator_.Restore(**state, how, options_.clock->Now());
    if (!restored.ok()) {
      store_ = nullptr;
      return restored;
    }
    options_.log(Describe(**state, options_.resume));
    if ((*state)->checkpoint().nonfinite_blocks() > 0) {
      options_.log(NotFinite((*state)->checkpoint(), coordinator_.newest_finite_checkpoint()));
      checkpoints_nonfinite_ = true;
    }
  }

  StateWriter::Options writing;
  writing.store = store_.get();
  // The store of a resumed job still contains the state from before the resume. A coordinator that
  // restarted from that state would assign this coordinator's incarnations again.
  if (state->has_value() && !options_.resume) {
    const absl::StatusOr<uint64_t> synced = store_->Sync();
    writing.has_state = synced.ok();
    if (synced.ok()) coordinator_.OnSynced(*synced, options_.clock->Now());
  }
  writing.snapshot = [this] {
    MutexLock lock(&mutex_);
    return coordinator_.Save(options_.clock->Now());
  };
  writing.synced = [this](uint64_t revision) {
    MakeAnyhow([revision](JobCoordinator& coordinator, absl::Duration now) -> Answer {
      coordinator.OnSynced(revision, now);
      return nullptr;
    });
    if (options_.stored != nullptr) options_.stored("coordinator.state");
  };
  writing.log = options_.log;
  writing.clock = options_.clock;
  writer_ = std::make_unique<StateWriter>(std::move(writing));

  CheckpointConductor::Options conducting;
  conducting.directory =
      std::make_shared<const CheckpointDirectory>(options_.files, options_.directory);
  conducting.connect = options_.connect;
  conducting.done = [this](uint64_t number, const absl::StatusOr<CheckpointStatus>& outcome) {
    OnCheckpoint(number, outcome);
  };
  conducting.clock = options_.clock;
  conductor_ = std::make_unique<CheckpointConductor>(std::move(conducting));
  ModelStore::Options storing;
  storing.files = options_.files;
  storing.directory = options_.directory;
  storing.model_directory =
      options_.model_directory.empty() ? options_.directory : options_.model_directory;
  storing.continues = state->has_value() && !options_.resume;
  storing.stored = options_.stored;
  models_ = std::make_unique<ModelStore>(std::move(storing));
  opened_ = true;
  return absl::OkStatus();
}

void CoordinatorService::OnCheckpoint(uint64_t number,
                                      const absl::StatusOr<CheckpointStatus>& outcome) {
  std::string line;
  std::string nonfinite;
  {
    MutexLock lock(&mutex_);
    if (outcome.ok()) {
      const bool is_new = !checkpoints_nonfinite_;
      checkpoints_nonfinite_ = outcome->nonfinite_blocks() > 0;
      if (checkpoints_nonfinite_ && is_new) {
        nonfinite = NotFinite(*outcome, coordinator_.newest_finite_checkpoint());
      }
    }
    const bool failed_before = std::exchange(checkpoints_fail_, !outcome.ok());
    if (!outcome.ok() && !absl::IsCancelled(outcome.status())) {
      line = absl::StrCat("checkpoint ", number,
                          " failed, training continues: ", outcome.status().message());
    } else if (outcome.ok() && failed_before) {
      line = absl::StrCat("checkpoint ", number, " is complete");
    }
  }
  if (!line.empty()) options_.log(line);
  if (!nonfinite.empty()) options_.log(nonfinite);
  MakeAnyhow([&outcome](JobCoordinator& coordinator, absl::Duration now) -> Answer {
    coordinator.EndCheckpoint(outcome, now);
    return nullptr;
  });
}

}  // namespace torchps
