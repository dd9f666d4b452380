#include "torchps/server/coordinator/checkpoint_conductor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "torchps/checkpoint/manifest.h"

namespace torchps {
namespace {

// Minimum rate for writing a shard and reading it back. Any usable disk is faster.
constexpr double kLeastBytesPerSecond = 4 << 20;

absl::Status Cancelled() { return absl::CancelledError("the coordinator is shutting down"); }

// Prefixes the message of `status` with `what`.
absl::Status About(const std::string& what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

// Returns an error unless a server with this status can write a shard.
absl::Status CheckReady(const ServerStatus& server, uint64_t job_id) {
  if (server.job_id() == 0) {
    return absl::UnavailableError(server.has_restoring()
                                      ? "it is still restoring the job"
                                      : "it was restarted, and no worker has connected to it yet");
  }
  if (server.job_id() != job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("it works for another job: '", server.job_name(), "', number ",
                     server.job_id(), "; expected number ", job_id));
  }
  if (!server.durability().has_directory()) {
    return absl::FailedPreconditionError(
        "it has no directory for checkpoints; start it with --dir");
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Reply, typename Begin>
std::vector<absl::StatusOr<Reply>> CheckpointConductor::Ask(const std::vector<int>& asked,
                                                            absl::Duration timeout,
                                                            const Begin& begin) {
  std::vector<absl::StatusOr<Reply>> replies =
      calls_.Ask<Reply>(asked, stubs_.size(), timeout, begin);
  for (const int server : asked) {
    // Cancellation by Stop() is not a server's fault.
    if (replies[server].ok() || absl::IsCancelled(replies[server].status())) continue;
    replies[server] = About(GetName(server), replies[server].status());
  }
  return replies;
}

CheckpointConductor::CheckpointConductor(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

void CheckpointConductor::Start(JobCoordinator::CheckpointPlan plan) {
  MutexLock lock(&mutex_);
  next_ = std::move(plan);
  changed_.Signal();
}

void CheckpointConductor::Stop() {
  calls_.Stop();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void CheckpointConductor::Run() {
  while (true) {
    std::optional<JobCoordinator::CheckpointPlan> plan;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && !next_.has_value()) changed_.Wait(&mutex_);
      if (stopping_) return;
      std::swap(plan, next_);
    }
    const absl::Duration began = options_.clock->Now();
    absl::StatusOr<CheckpointStatus> outcome = Take(*plan);
    stubs_.clear();
    if (outcome.ok()) {
      outcome->set_seconds(absl::ToDoubleSeconds(options_.clock->Now() - began));
    }
    options_.done(plan->number, outcome);
  }
}

absl::StatusOr<CheckpointStatus> CheckpointConductor::Take(
    const JobCoordinator::CheckpointPlan& plan) {
  if (absl::Status status = ConnectAll(plan); !status.ok()) return status;
  const absl::StatusOr<uint64_t> largest = LookAtServers(plan);
  if (!largest.ok()) return largest.status();
  const absl::Duration timeout =
      options_.shard_timeout + absl::Seconds(static_cast<double>(*largest) / kLeastBytesPerSecond);
  const absl::StatusOr<Manifest> manifest = WriteShards(plan, timeout);
  if (!manifest.ok()) return manifest.status();
  const absl::StatusOr<std::string> text = EncodeManifest(*manifest);
  if (!text.ok()) return text.status();
  // WriteManifest() also reads the manifest back.
  const absl::Status written = options_.directory->WriteManifest(plan.number, *text);
  if (!written.ok()) return written;
  CommitCheckpointRequest commit;
  commit.set_checkpoint(plan.number);
  commit.set_job_id(plan.state.job_id());
  commit.set_manifest(*text);
  const uint64_t nonfinite = NonfiniteBlocks(*manifest);
  for (const uint64_t keep : nonfinite == 0 ? plan.keep : plan.keep_if_nonfinite) {
    commit.add_keep(keep);
  }
  if (absl::Status status = Commit(commit); !status.ok()) {
    // A server restarted after it wrote the shard and restored an older checkpoint, or removed the
    // shard. So the checkpoint is incomplete, and the manifest must not remain.
    if (absl::IsFailedPrecondition(status)) {
      status.Update(options_.directory->RemoveManifest(plan.number));
    }
    return status;
  }
  commit.set_everywhere(true);
  if (absl::Status status = Commit(commit); !status.ok()) return status;

  CheckpointStatus status;
  status.set_number(plan.number);
  status.set_directory(options_.directory->CheckpointPath(plan.number));
  uint64_t bytes = text->size();
  double longest_pause = 0;
  for (const ShardInfo& shard : manifest->shard()) {
    bytes += shard.bytes();
    longest_pause = std::max(longest_pause, shard.longest_pause_seconds());
  }
  status.set_bytes(bytes);
  status.set_longest_pause_seconds(longest_pause);
  status.set_nonfinite_blocks(nonfinite);
  return status;
}

absl::Status CheckpointConductor::ConnectAll(const JobCoordinator::CheckpointPlan& plan) {
  const int servers = plan.state.server_count();
  addresses_.assign(plan.state.server_address().begin(), plan.state.server_address().end());
  addresses_.resize(servers);
  for (int i = 0; i < servers; ++i) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        options_.connect(i, addresses_[i]);
    if (!channel.ok()) return About(GetName(i), channel.status());
    stubs_.push_back(ParameterService::NewStub(*channel));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CheckpointConductor::LookAtServers(
    const JobCoordinator::CheckpointPlan& plan) {
  const ServerStatusRequest request;
  const std::vector<absl::StatusOr<ServerStatus>> servers = Ask<ServerStatus>(
      AllServers(), options_.look_timeout,
      [&](int server, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return stubs_[server]->AsyncGetServerStatus(context, request, queue);
      });
  uint64_t largest = 0;
  for (size_t i = 0; i < servers.size(); ++i) {
    if (!servers[i].ok()) return servers[i].status();
    const absl::Status ready = CheckReady(*servers[i], plan.state.job_id());
    if (!ready.ok()) return About(GetName(static_cast<int>(i)), ready);
    largest = std::max(largest, servers[i]->state_bytes());
  }
  return largest;
}

absl::StatusOr<Manifest> CheckpointConductor::WriteShards(
    const JobCoordinator::CheckpointPlan& plan, absl::Duration timeout) {
  WriteShardRequest request;
  request.set_checkpoint(plan.number);
  request.set_job_id(plan.state.job_id());
  const std::vector<absl::StatusOr<ShardInfo>> shards =
      Ask<ShardInfo>(AllServers(), timeout,
                     [&](int server, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
                       return stubs_[server]->AsyncWriteShard(context, request, queue);
                     });
  Manifest manifest;
  manifest.set_checkpoint(plan.number);
  manifest.set_job_id(plan.state.job_id());
  *manifest.mutable_job() = plan.state.job();
  *manifest.mutable_layout() = plan.state.layout();
  manifest.set_server_count(plan.state.server_count());
  *manifest.mutable_coordinator() = plan.state;
  manifest.set_created(absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()));
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].ok()) return shards[i].status();
    const ShardInfo& shard = *shards[i];
    if (shard.server_index() != static_cast<int>(i) ||
        shard.file() !=
            CheckpointDirectory::ShardName(static_cast<int>(i), plan.state.server_count())) {
      return absl::InternalError(absl::StrCat(GetName(static_cast<int>(i)), " wrote ", shard.file(),
                                              " as server ", shard.server_index(),
                                              ": give all workers the same --servers list"));
    }
    *manifest.add_shard() = shard;
  }
  return manifest;
}

absl::Status CheckpointConductor::Commit(const CommitCheckpointRequest& request) {
  std::vector<int> asked = AllServers();
  const absl::Duration give_up = options_.clock->Now() + options_.commit_patience;
  while (true) {
    const std::vector<absl::StatusOr<CommitCheckpointReply>> replies = Ask<CommitCheckpointReply>(
        asked, options_.commit_timeout,
        [&](int server, grpc::ClientContext* context, grpc::CompletionQueue* queue) {
          return stubs_[server]->AsyncCommitCheckpoint(context, request, queue);
        });
    // Ask unavailable servers again, because they may still have the shard and lack only the
    // manifest.
    absl::Status failure;
    std::vector<int> again;
    for (const int server : asked) {
      if (replies[server].ok()) continue;
      failure = replies[server].status();
      if (!absl::IsUnavailable(failure)) return failure;
      again.push_back(server);
    }
    if (again.empty()) return absl::OkStatus();
    if (options_.clock->Now() >= give_up) return failure;
    asked = std::move(again);
    MutexLock lock(&mutex_);
    if (!stopping_) changed_.WaitFor(&mutex_, options_.commit_pause);
    if (stopping_) return Cancelled();
  }
}

std::vector<int> CheckpointConductor::AllServers() const {
  std::vector<int> all(stubs_.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string CheckpointConductor::GetName(int index) const {
  const std::string& address = addresses_[index];
  return address.empty() ? absl::StrCat("server ", index)
                         : absl::StrCat("server ", index, " at ", address);
}

}  // namespace torchps
