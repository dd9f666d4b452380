#include "tests/simulation/sim_server.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/checkpoint/checkpoint_directory.h"

namespace torchps::simulation {
namespace {

// The same value as in Server.
constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kAskInterval = absl::Seconds(1);

}  // namespace

SimServer::SimServer(World* world, Network* network, const Scenario* scenario, Fault fault,
                     int index, std::shared_ptr<FaultyFileSystem> disk)
    : world_(world),
      network_(network),
      scenario_(scenario),
      fault_(fault),
      index_(index),
      process_(world, absl::StrCat("server ", index)),
      model_(world, scenario, index),
      disk_(world, scenario, std::move(disk),
            [this] {
              if (!MayDie()) return false;
              world_->Trace(process_.name(), " dies during a write");
              Kill(world_->Chance(scenario_->power_cuts));
              return true;
            }),
      collected_(scenario),
      accounting_(index == 0 ? std::make_unique<AccountingModel>(world, scenario) : nullptr) {}

void SimServer::Start() {
  process_.Start();
  server_incarnation_ = world_->Draw() | 1;
  writing_log_ = copying_ = keeping_state_ = false;
  if (scenario_->copies()) {
    backup_store_ = std::make_unique<BackupStore>(&disk_.files(), SimDisk::directory());
  }
  writing_shard_ = 0;
  written_shards_.clear();
  world_->Trace(process_.name(), " starts");
  if (index_ == 0) StartCoordinator();
  process_.After(kTick, [this] { Tick(); });
}

void SimServer::Kill(bool power_cut) {
  if (!process_.alive()) return;
  ++deaths_;
  process_.Die();
  disk_.Cut();
  ending_ = true;
  world_->Trace(process_.name(), power_cut ? " loses power" : " is killed");
  world_->After(absl::ZeroDuration(), [this, power_cut] { FinishKill(power_cut); });
}

void SimServer::FinishKill(bool power_cut) {
  if (disk_.in_long_work()) {
    // The process is in a long write, whose functions are still on the call stack.
    world_->After(absl::Milliseconds(1), [this, power_cut] { FinishKill(power_cut); });
    return;
  }
  model_.OnDeath();
  has_died_ = true;
  early_updates_ = 0;
  job_ = nullptr;
  storage_ = nullptr;
  backup_store_ = nullptr;
  coordinator_ = nullptr;
  store_ = nullptr;
  held_.clear();
  network_->OnDeath(&process_);
  const DiskLoss loss = std::exchange(disk_loss_, DiskLoss::kNone);
  if (loss == DiskLoss::kAll) {
    disk_.Replace();
  } else {
    disk_.Recover(power_cut);
  }
  if (loss == DiskLoss::kSector) {
    world_->Trace("a sector of ", process_.name(), "'s ", OverwriteSector(), " is overwritten");
  }
  if (power_cut) found_after_kill_ = found_after_power_cut_;
  ending_ = false;
}

bool SimServer::MayDie() const {
  return scenario_->logs() || has_committed_ || (scenario_->durable() && job_ == nullptr);
}

void SimServer::Tick() {
  if (job_ != nullptr) {
    if (fault_ != Fault::kCountDeadSlot) job_->ExpireLeases();
    model_.OnExpiry();
    model_.Check();
    MakeDueUpdates();
    WriteLogSoon();
    CopySoon();
    AskForCheckpoint();
  }
  if (coordinator_ != nullptr) {
    coordinator_->Tick(world_->now());
    if (std::optional<JobCoordinator::CheckpointPlan> plan =
            coordinator_->BeginCheckpoint(world_->now())) {
      Hold([this, plan = *std::move(plan)](const StateWriter::Kept& kept) {
        if (kept.job.ok()) {
          Conduct(plan);
        } else {
          coordinator_->EndCheckpoint(kept.job, world_->now());
        }
      });
    }
    AfterCoordination();
  }
  process_.After(kTick, [this] { Tick(); });
}

void SimServer::MakeDueUpdates() {
  if (job_ == nullptr) return;
  model_.OnHousekeeping(process_.frozen_until());
  job_->MakeDueUpdates();
  model_.Check();
  PlantInUpdates();
  WriteLogSoon();
}

absl::StatusOr<HostedJob*> SimServer::JobFor(uint64_t life) const {
  if (job_ == nullptr) return absl::AbortedError("this server has no job yet");
  if (life != server_incarnation_)
    return absl::AbortedError("this server has been restarted since");
  return job_.get();
}

absl::StatusOr<HelloReply> SimServer::TakeHello(const HelloRequest& request) {
  if (job_ == nullptr) {
    std::unique_ptr<SimStorage> storage;
    if (scenario_->durable()) {
      storage = std::make_unique<SimStorage>(world_, &disk_, MakePeer(), fault_);
    }
    absl::StatusOr<std::unique_ptr<HostedJob>> job =
        HostedJob::Create(request, world_->clock(), storage.get());
    if (!job.ok()) return job.status();
    storage_ = std::move(storage);
    job_ = *std::move(job);
    job_->SetWake([this](absl::Duration delay) {
      process_.After(std::max(delay, absl::ZeroDuration()), [this] { MakeDueUpdates(); });
    });
  }
  if (absl::Status same = job_->CheckSame(request); !same.ok()) return same;
  HelloReply reply;
  reply.set_server_incarnation(server_incarnation_);
  if (!request.only_restores()) {
    const absl::Status entered = job_->Enter(request.slot(), request.incarnation(), &reply);
    if (!entered.ok()) return entered;
  }
  PlantInReturn();
  return reply;
}

void SimServer::Hello(const Arrival& arrival, const HelloRequest& request) {
  const bool had_job = job_ != nullptr;
  const absl::StatusOr<HelloReply> reply = TakeHello(request);
  world_->Trace(process_.name(), ": Hello of slot ", request.slot(), " incarnation ",
                request.incarnation(), ": ",
                reply.ok() ? reply->ShortDebugString() : reply.status().ToString());
  if (!process_.alive()) return;
  if (job_ != nullptr && !had_job) {
    ServerStatus status;
    job_->Describe(/*include_ledger=*/false, &status);
    const bool restored = storage_ != nullptr && storage_->origin().has_value();
    model_.OnJob(job_.get(), restored, restored && storage_->origin()->from_log);
  }
  const Incarnation before = model_.SlotHolder(request.slot());
  const bool enters = reply.ok() && !request.only_restores();
  if (enters) model_.OnHello(request.slot(), request.incarnation(), *reply);
  arrival->Answer(reply);
  model_.Check();
  if (enters && before != 0 && before != request.incarnation()) {
    on_takeover_(this, before, request.incarnation());
  }
}

void SimServer::Push(const Arrival& arrival, const PushHeader& header, size_t index, size_t count) {
  const absl::StatusOr<HostedJob*> job = JobFor(header.server_incarnation);
  if (!job.ok()) {
    arrival->Answer<PushReply>(job.status());
    return;
  }
  const PushHeader taken = PlantInPush(*job, header);
  const absl::Status pushed = (*job)->PushFrame(taken, ReadPayload(*scenario_, header));
  world_->Trace(process_.name(), ": block ", header.block, " of step ", header.step, " of slot ",
                header.slot, " incarnation ", header.incarnation, " on version ",
                header.base_version, ": ", pushed.ToString());
  model_.OnFrame(header, pushed);
  if (model_.IsCollected(header)) collected_.OnPush(header);
  model_.Check();
  PlantInUpdates();
  WriteLogSoon();
  if (!pushed.ok()) {
    arrival->Answer<PushReply>(pushed);
    return;
  }
  const auto answer = [this, arrival, header](const absl::StatusOr<PushReply>& reply) {
    world_->Trace(process_.name(), ": answers step ", header.step, " of slot ", header.slot, ": ",
                  reply.ok() ? "applied" : reply.status().ToString());
    if (reply.ok()) {
      model_.OnAcknowledged(header.slot, header.incarnation, header.step, *reply);
    }
    arrival->Answer(reply);
  };
  if (const std::optional<PushReply> planted = PlantInAnswer(header, index, count)) {
    answer(*planted);
    model_.Check();
    return;
  }
  if (index + 1 < count) return;
  const uint64_t wait = ++last_wait_;
  model_.OnPushEnd(header.slot, header.incarnation, header.step);
  const auto is_answered = std::make_shared<bool>(false);
  const HostedJob::ParkedId parked =
      (*job)->FinishPush(header.slot, header.incarnation, header.step,
                         [this, wait, answer, is_answered](const absl::StatusOr<PushReply>& reply) {
                           *is_answered = true;
                           model_.OnWaitOver(wait);
                           answer(reply);
                         });
  if (!*is_answered) {
    model_.OnPushParked(wait, header.slot, header.step);
    arrival->OnCancel([this, wait, parked, job = *job] {
      job->CancelPush(parked);
      model_.OnWaitOver(wait);
    });
  }
  model_.Check();
}

void SimServer::Pull(const Arrival& arrival, const PullRequest& request) {
  const absl::StatusOr<HostedJob*> alive = JobFor(request.server_incarnation());
  const auto pulled = std::make_shared<Pulled>();
  if (request.read_only()) {
    HostedJob* const job = job_.get();
    if (job == nullptr && request.server_incarnation() != 0) {
      arrival->Answer<Pulled>(alive.status());
      return;
    }
    if (job == nullptr || !job->store().initialized()) {
      arrival->Answer<Pulled>(absl::FailedPreconditionError("no values to read yet"));
    } else {
      pulled->min_clock = job->ReadOnlyPull().min_clock;
      SendBlocks(arrival, job, request, pulled);
    }
    return;
  }
  if (!alive.ok()) {
    arrival->Answer<Pulled>(alive.status());
    return;
  }
  HostedJob* const job = *alive;
  const uint64_t wait = ++last_wait_;
  const absl::StatusOr<HostedJob::ParkedId> parked =
      job->Pull(request.slot(), request.incarnation(), request.clock(), request.ahead(),
                [this, arrival, request, job, pulled, wait](const HostedJob::PullGrant& grant) {
                  model_.OnWaitOver(wait);
                  world_->Trace(process_.name(), ": slot ", request.slot(), " may read at clock ",
                                request.clock(), ", min clock ", grant.min_clock);
                  model_.OnGrant(request.slot(), request.clock(), grant.min_clock);
                  pulled->min_clock = grant.min_clock;
                  process_.After(absl::ZeroDuration(), [this, arrival, job, request, pulled] {
                    SendBlocks(arrival, job, request, pulled);
                  });
                });
  if (!parked.ok()) {
    arrival->Answer<Pulled>(parked.status());
    return;
  }
  model_.OnPull(request);
  if (*parked != 0) {
    world_->Trace(process_.name(), ": the pull of slot ", request.slot(), " at clock ",
                  request.clock(), " waits");
    model_.OnPullParked(wait, request.slot(),
                        std::max(request.clock(), model_.Clock(request.slot())));
    arrival->OnCancel([this, wait, parked = *parked, job] {
      job->CancelPull(parked);
      model_.OnWaitOver(wait);
    });
  }
  model_.Check();
}

void SimServer::SendBlocks(const Arrival& arrival, HostedJob* job, const PullRequest& request,
                           std::shared_ptr<Pulled> pulled) {
  const size_t index = pulled->blocks.size();
  if (index == job->store().owned()) {
    arrival->Answer<Pulled>(*pulled);
    return;
  }
  const Version have =
      request.have_version().empty() ? 0 : request.have_version(static_cast<int>(index));
  const absl::StatusOr<ParameterStore::Image> image =
      job->store().Read(index, job->pull_encoding(), have);
  if (!image.ok()) {
    arrival->Answer<Pulled>(image.status());
    return;
  }
  pulled->blocks.push_back({job->store().block_id(index), image->version, image->unchanged});
  process_.After(absl::Microseconds(50), [this, arrival, job, request, pulled] {
    SendBlocks(arrival, job, request, pulled);
  });
}

void SimServer::Renew(const Arrival& arrival, const RenewRequest& request) {
  const absl::StatusOr<HostedJob*> job = JobFor(request.server_incarnation());
  if (!job.ok()) {
    arrival->Answer<RenewReply>(job.status());
    return;
  }
  const absl::StatusOr<RenewReply> renewed = (*job)->Renew(request.slot(), request.incarnation());
  model_.OnRenew(request.slot(), request.incarnation(), renewed);
  arrival->Answer(renewed);
}

void SimServer::Leave(const Arrival& arrival, const LeaveRequest& request) {
  const absl::StatusOr<HostedJob*> job = JobFor(request.server_incarnation());
  if (!job.ok()) {
    arrival->Answer<LeaveReply>(job.status());
    return;
  }
  world_->Trace(process_.name(), ": slot ", request.slot(), " leaves");
  (*job)->Leave(request.slot(), request.incarnation());
  model_.OnLeave(request.slot(), request.incarnation());
  arrival->Answer<LeaveReply>(LeaveReply());
  model_.Check();
}

void SimServer::GetServerStatus(const Arrival& arrival) {
  ServerStatus status;
  if (job_ != nullptr) job_->Describe(/*include_ledger=*/false, &status);
  arrival->Answer<ServerStatus>(status);
}

void SimServer::WriteShard(const Arrival& arrival, const WriteShardRequest& request) {
  if (job_ == nullptr) {
    arrival->Answer<ShardInfo>(absl::UnavailableError("this server has no job yet"));
    return;
  }
  const uint64_t number = request.checkpoint();
  if (const auto written = written_shards_.find(number); written != written_shards_.end()) {
    arrival->Answer<ShardInfo>(written->second);
    return;
  }
  if (writing_shard_ != 0) {
    arrival->Answer<ShardInfo>(absl::AlreadyExistsError("another shard is being written"));
    return;
  }
  writing_shard_ = number;
  const uint64_t life = process_.life();
  // WriteShard() also writes the log, which answers parked pushes. The model must check these
  // answers before other events run.
  const absl::StatusOr<ShardInfo> info = storage_->WriteShard(number, [this] { model_.Check(); });
  world_->Trace(process_.name(), ": its shard of checkpoint ", number, ": ",
                info.status().ToString());
  if (!process_.alive() || process_.life() != life) return;
  model_.Check();
  writing_shard_ = 0;
  if (info.ok()) {
    written_shards_[number] = *info;
    CheckFailedShards();
  }
  arrival->Answer(info);
  WriteLogSoon();
}

void SimServer::CheckFailedShards() {
  const CheckpointDirectory place(&disk_.files(), SimDisk::directory());
  const absl::StatusOr<std::vector<uint64_t>> complete = place.Complete();
  const absl::StatusOr<uint64_t> highest = place.HighestNumber();
  if (!complete.ok() || !highest.ok()) return;
  std::vector<uint64_t> incomplete;
  for (uint64_t number = 1; number <= *highest; ++number) {
    const std::string shard = place.ShardPath(number, index_, static_cast<int>(peers_.size()));
    const bool is_there = disk_.files().OpenForReading(shard).ok() ||
                          disk_.files().OpenForReading(TemporaryPath(shard)).ok();
    if (is_there && !absl::c_linear_search(*complete, number)) incomplete.push_back(number);
  }
  if (incomplete.size() <= 1) return;
  world_->Violation(process_.name(), " keeps the shards of several failed checkpoints: ",
                    absl::StrJoin(incomplete, ", "));
}

void SimServer::CommitCheckpoint(const Arrival& arrival, const CommitCheckpointRequest& request) {
  if (job_ == nullptr || writing_shard_ != 0) {
    arrival->Answer<CommitCheckpointReply>(absl::UnavailableError("later"));
    return;
  }
  const absl::Status committed = storage_->Commit(request);
  world_->Trace(process_.name(), ": commit of checkpoint ", request.checkpoint(), ": ",
                committed.ToString());
  if (!process_.alive()) return;
  // Copying the checkpoint may complete copies of the log, which answers parked pushes.
  model_.Check();
  if (committed.ok()) {
    has_committed_ = true;
    arrival->Answer<CommitCheckpointReply>(CommitCheckpointReply());
  } else {
    arrival->Answer<CommitCheckpointReply>(committed);
  }
}

void SimServer::LimitDisk(int64_t log_room) {
  const CheckpointDirectory place(&disk_.files(), SimDisk::directory());
  const absl::StatusOr<std::vector<uint64_t>> complete = place.Complete();
  if (!complete.ok() || complete->empty()) return;
  const auto servers = static_cast<int>(peers_.size());
  const auto shard =
      disk_.files().OpenForReading(place.ShardPath(complete->back(), index_, servers));
  if (!shard.ok()) return;
  // As JobDirectory: two shards for each server, and 1 MiB for manifest and state.
  disk_.Limit((1 << 20) + 2 * servers * (*shard)->size() + log_room);
}

void SimServer::AskForCheckpoint() {
  const bool wants = storage_ != nullptr && storage_->wants_checkpoint();
  if (!wants || world_->now() < next_ask_) return;
  next_ask_ = world_->now() + kAskInterval;
  world_->Trace(process_.name(), ": its log needs a checkpoint");
  RegisterServerRequest request;
  request.set_job_id(job_->job_id());
  request.set_server_count(static_cast<int>(peers_.size()));
  request.mutable_place()->set_server_index(index_);
  request.mutable_place()->set_server_incarnation(server_incarnation_);
  request.mutable_place()->set_address(absl::StrCat("server-", index_, ":7000"));
  request.set_wants_checkpoint(true);
  network_->Call<RegisterServerReply>(&process_, peers_[0]->process(), kAskInterval,
                                      {[peer = peers_[0], request](const Arrival& arrival) {
                                        peer->Prompt(arrival, &JobCoordinator::RegisterServer,
                                                     request);
                                      }},
                                      [](const absl::StatusOr<RegisterServerReply>&) {});
}

void SimServer::WriteLogSoon() {
  if (storage_ == nullptr || !scenario_->logs() || std::exchange(writing_log_, true)) return;
  process_.After(world_->Between(absl::Microseconds(100), absl::Milliseconds(5)),
                 [this] { WriteLog(); });
}

void SimServer::WriteLog() {
  writing_log_ = false;
  const absl::StatusOr<bool> written = storage_->WriteLog();
  if (!process_.alive()) return;
  model_.Check();
  if (written.ok()) {
    if (*written) WriteLogSoon();
    CopySoon();
    return;
  }
  world_->Trace(process_.name(), ": its log: ", written.status().ToString());
  writing_log_ = true;
  process_.After(absl::Seconds(1), [this] { WriteLog(); });
}

void SimServer::Join(const Arrival& arrival, const JoinRequest& request) {
  const absl::StatusOr<JoinReply> reply = coordinator_->Join(request, world_->now());
  const bool is_new = reply.ok() && coordinator_->GivesOut(reply->incarnation());
  Hold([this, arrival, reply, is_new, nonce = request.nonce()](const StateWriter::Kept& kept) {
    const absl::Status& needed = is_new ? kept.incarnations : kept.job;
    if (needed.ok() && reply.ok()) accounting_->OnNamed(reply->incarnation(), nonce);
    arrival->Answer(needed.ok() ? reply : absl::StatusOr<JoinReply>(needed));
  });
  AfterCoordination();
}

void SimServer::AwaitStart(const Arrival& arrival, const AwaitStartRequest& request) {
  const JobCoordinator::ParkedCall parked = coordinator_->AwaitStart(
      request, world_->now(), [this, arrival](const absl::StatusOr<AwaitStartReply>& reply) {
        Hold([arrival, reply](const StateWriter::Kept&) { arrival->Answer(reply); });
      });
  if (parked != 0) {
    arrival->OnCancel([this, parked] { coordinator_->CancelParked(parked); });
  }
  AfterCoordination();
}

void SimServer::CountAsUsed(const NextWorkRequest& request) {
  if (coordinator_ != nullptr) {
    coordinator_->NextWork(request, world_->now(), [](const absl::StatusOr<NextWorkReply>&) {});
  }
}

void SimServer::NextWork(const Arrival& arrival, const NextWorkRequest& request) {
  NextWorkRequest taken = request;
  if (fault_ == Fault::kLoseSamples) taken.clear_lost();
  const JobCoordinator::ParkedCall parked = coordinator_->NextWork(
      taken, world_->now(), [this, arrival, request](absl::StatusOr<NextWorkReply> reply) {
        if (fault_ == Fault::kScheduleRunsOut && reply.ok() && reply->has_lease()) {
          DataLease* const lease = reply->mutable_lease();
          lease->set_progress_end(std::min(1.0, 1.25 * lease->progress_end()));
        }
        world_->Trace("coordinator: slot ", request.slot(), " gets ",
                      reply.ok() ? reply->ShortDebugString() : reply.status().ToString());
        if (reply.ok() && reply->has_lease()) {
          accounting_->OnLease(request.slot(), request.incarnation(), reply->lease());
        }
        Hold([arrival, reply](const StateWriter::Kept&) { arrival->Answer(reply); });
      });
  if (parked != 0) {
    arrival->OnCancel([this, parked] { coordinator_->CancelParked(parked); });
  }
  // Reports the returned lease before the answer is sent.
  accounting_->OnHandedIn(request, Status());
  AfterCoordination();
}

}  // namespace torchps::simulation
