// Implements the part of SimServer that simulates the coordinator's service, the state writer and
// the checkpoint conductor.

#include <algorithm>
#include <utility>

#include "tests/simulation/sim_server.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/common/check.h"

namespace torchps::simulation {
namespace {

constexpr absl::Duration kLookTimeout = absl::Seconds(2);
constexpr absl::Duration kShardTimeout = absl::Seconds(5);
constexpr absl::Duration kCommitPatience = absl::Seconds(5);
constexpr absl::Duration kCommitPause = absl::Milliseconds(500);
// The same value as in StateWriter.
constexpr absl::Duration kSyncPause = absl::Seconds(1);

}  // namespace

void SimServer::StartCoordinator() {
  JobCoordinator::Options options;
  options.seed = world_->Draw();
  options.has_directory = scenario_->durable();
  coordinator_ = std::make_unique<JobCoordinator>(options);
  synced_revision_ = 0;
  has_state_ = has_own_state_ = state_is_refused_ = false;
  last_sync_ = world_->now();
  if (!scenario_->durable()) return;
  absl::StatusOr<std::unique_ptr<CoordinatorStore>> store =
      CoordinatorStore::Open(&disk_.files(), SimDisk::directory());
  if (!process_.alive()) return;
  if (!store.ok()) {
    // The process dies, as ps_server does if it cannot open its store. The simulation restarts it
    // later.
    Kill(/*power_cut=*/false);
    return;
  }
  store_ = *std::move(store);
  const absl::StatusOr<std::optional<CoordinatorState>> state = store_->Load();
  if (!state.ok()) {
    world_->Violation("the coordinator's saved state is lost: ", state.status().ToString());
    return;
  }
  const uint64_t revision = state->has_value() ? (*state)->revision() : 0;
  if (revision < told_revision_) has_forgotten_ = true;
  if (revision < found_after_kill_) {
    world_->Violation("the coordinator restored revision ", revision, " although revision ",
                      found_after_kill_, " was stored");
    return;
  }
  if (!state->has_value()) {
    accounting_->OnRestored(0);
    return;
  }
  const absl::StatusOr<uint64_t> synced = store_->Sync();
  has_state_ = synced.ok();
  if (!process_.alive()) return;
  const absl::Status restored =
      coordinator_->Restore(**state, JobCoordinator::Return::kInPlace, world_->now());
  if (!restored.ok()) {
    world_->Violation("the coordinator does not restore its saved state: ", restored.ToString());
    return;
  }
  world_->Trace("coordinator: restored revision ", (*state)->revision());
  accounting_->OnRestored((*state)->revision());
  if (has_state_) coordinator_->OnSynced(*synced, world_->now());
  AfterCoordination();
}

JobStatus SimServer::Status() {
  JobStatus status;
  coordinator_->GetJobStatus(
      JobStatusRequest(), world_->now(),
      [&status](const absl::StatusOr<JobStatus>& reply) { status = *reply; });
  for (const std::function<void()>& give : coordinator_->TakeReady()) give();
  return status;
}

void SimServer::AfterCoordination() {
  for (const std::function<void()>& give : coordinator_->TakeReady()) give();
  if (store_ == nullptr || !coordinator_->durable()) {
    GiveHeld(StateWriter::Kept());
    return;
  }
  const bool is_due = !state_is_refused_ && coordinator_->vital_revision() > synced_revision_;
  if ((held_.empty() && !is_due) || std::exchange(keeping_state_, true)) return;
  process_.After(world_->Between(absl::Microseconds(50), absl::Milliseconds(3)),
                 [this] { KeepState(); });
}

void SimServer::KeepState() {
  keeping_state_ = false;
  const bool sync =
      coordinator_->vital_revision() > synced_revision_ || world_->now() - last_sync_ >= kSyncPause;
  const CoordinatorState state = coordinator_->Save(world_->now());
  // Reports the state before the write, because the disk may keep it even if the write fails.
  accounting_->OnKept(state.revision());
  const absl::Status written = store_->Write(state, sync);
  if (!process_.alive()) return;
  if (!written.ok()) world_->Trace("coordinator: its state: ", written.ToString());
  if (written.ok()) found_after_kill_ = state.revision();
  if (written.ok() && sync) found_after_power_cut_ = state.revision();
  if (written.ok() && sync) {
    synced_revision_ = state.revision();
    last_sync_ = world_->now();
    has_state_ = has_own_state_ = true;
  }
  StateWriter::Kept kept;
  if (!written.ok() && !has_state_) kept.job = absl::UnavailableError(written.message());
  if (!written.ok() && !has_own_state_) {
    kept.incarnations = absl::UnavailableError(written.message());
  }
  if (kept.job.ok()) told_revision_ = state.revision();
  GiveHeld(kept);
  if (written.ok() && sync) {
    coordinator_->OnSynced(state.revision(), world_->now());
    AfterCoordination();
  }
  state_is_refused_ = !written.ok();
  if (state_is_refused_) {
    process_.After(kSyncPause, [this] {
      state_is_refused_ = false;
      AfterCoordination();
    });
  }
}

void SimServer::GiveHeld(const StateWriter::Kept& kept) {
  for (const Answer& give : std::exchange(held_, {})) give(kept);
}

void SimServer::Conduct(const JobCoordinator::CheckpointPlan& plan) {
  world_->Trace("coordinator: checkpoint ", plan.number, " begins");
  const auto conducted = std::make_shared<Conducted>();
  conducted->plan = plan;
  conducted->left = static_cast<int>(peers_.size());
  for (SimServer* const peer : peers_) {
    network_->Call<ServerStatus>(
        &process_, peer->process(), kLookTimeout,
        {[peer](const Arrival& arrival) { peer->GetServerStatus(arrival); }},
        [this, conducted](const absl::StatusOr<ServerStatus>& status) {
          if (conducted->over) return;
          if (!status.ok()) {
            EndCheckpoint(conducted, status.status());
          } else if (status->job_id() != conducted->plan.state.job_id()) {
            EndCheckpoint(conducted, absl::UnavailableError("a server has no job yet"));
          } else if (--conducted->left == 0) {
            WriteShards(conducted);
          }
        });
  }
}

void SimServer::WriteShards(const ConductedPointer& conducted) {
  conducted->shards.resize(peers_.size());
  conducted->left = static_cast<int>(peers_.size());
  WriteShardRequest request;
  request.set_checkpoint(conducted->plan.number);
  request.set_job_id(conducted->plan.state.job_id());
  for (SimServer* const peer : peers_) {
    network_->Call<ShardInfo>(
        &process_, peer->process(), kShardTimeout,
        {[peer, request](const Arrival& arrival) { peer->WriteShard(arrival, request); }},
        [this, conducted, index = peer->index()](const absl::StatusOr<ShardInfo>& info) {
          if (conducted->over) return;
          if (!info.ok()) {
            EndCheckpoint(conducted, info.status());
            return;
          }
          conducted->shards[index] = *info;
          if (--conducted->left == 0) OnShards(conducted);
        });
  }
}

void SimServer::OnShards(const ConductedPointer& conducted) {
  const CoordinatorState& state = conducted->plan.state;
  Manifest manifest;
  manifest.set_checkpoint(conducted->plan.number);
  manifest.set_job_id(state.job_id());
  *manifest.mutable_job() = state.job();
  *manifest.mutable_layout() = state.layout();
  manifest.set_server_count(state.server_count());
  *manifest.mutable_coordinator() = state;
  for (const ShardInfo& shard : conducted->shards) *manifest.add_shard() = shard;
  const absl::StatusOr<std::string> text = EncodeManifest(manifest);
  TPS_CHECK(text.ok(), text.status().ToString().c_str());
  const absl::Status written = CheckpointDirectory(&disk_.files(), SimDisk::directory())
                                   .WriteManifest(conducted->plan.number, *text);
  if (!process_.alive()) return;
  if (!written.ok()) {
    EndCheckpoint(conducted, written);
    return;
  }
  conducted->commit.set_checkpoint(conducted->plan.number);
  conducted->commit.set_job_id(state.job_id());
  conducted->commit.set_manifest(*text);
  for (const uint64_t keep : conducted->plan.keep) conducted->commit.add_keep(keep);
  CommitAll(conducted, /*everywhere=*/false);
}

void SimServer::CommitAll(const ConductedPointer& conducted, bool everywhere) {
  conducted->commit.set_everywhere(everywhere);
  conducted->left = static_cast<int>(peers_.size());
  conducted->give_up = world_->now() + kCommitPatience;
  for (SimServer* const peer : peers_) Commit(conducted, peer->index());
}

void SimServer::Commit(const ConductedPointer& conducted, int server) {
  SimServer* const peer = peers_[server];
  network_->Call<CommitCheckpointReply>(
      &process_, peer->process(), kShardTimeout,
      {[peer, request = conducted->commit](const Arrival& arrival) {
        peer->CommitCheckpoint(arrival, request);
      }},
      [this, conducted, server](const absl::StatusOr<CommitCheckpointReply>& reply) {
        if (conducted->over) return;
        if (reply.ok()) {
          if (--conducted->left > 0) return;
          if (conducted->commit.everywhere()) {
            EndCheckpoint(conducted, absl::OkStatus());
          } else {
            CommitAll(conducted, /*everywhere=*/true);
          }
        } else if (absl::IsUnavailable(reply.status()) && world_->now() < conducted->give_up) {
          process_.After(kCommitPause, [this, conducted, server] { Commit(conducted, server); });
        } else {
          if (absl::IsFailedPrecondition(reply.status()) && !conducted->commit.everywhere()) {
            CheckpointDirectory(&disk_.files(), SimDisk::directory())
                .RemoveManifest(conducted->plan.number)
                .IgnoreError();
            if (!process_.alive()) return;
          }
          EndCheckpoint(conducted, reply.status());
        }
      });
}

void SimServer::EndCheckpoint(const ConductedPointer& conducted, const absl::Status& status) {
  conducted->over = true;
  world_->Trace("coordinator: checkpoint ", conducted->plan.number, ": ", status.ToString());
  absl::StatusOr<CheckpointStatus> outcome = CheckpointStatus();
  if (status.ok()) {
    outcome->set_number(conducted->plan.number);
  } else {
    outcome = status;
  }
  coordinator_->EndCheckpoint(outcome, world_->now());
  AfterCoordination();
}

}  // namespace torchps::simulation
