#include "torchps/server/job/parameter_server.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "torchps/server/backup/backup_peer.h"

namespace torchps {
namespace {

// After waiting this long, a Hello is answered with the restore progress. Shorter than the workers'
// timeout.
constexpr absl::Duration kLongestSilence = absl::Seconds(1);

// Returns the number of servers of the job with this server's host; 0 if the hosts are unknown.
int CountServersHere(const HelloRequest& request) {
  const auto host = [](const std::string& address) {
    return address.substr(0, address.rfind(':'));
  };
  const int own = request.server_index();
  if (own < 0 || own >= request.server_address_size()) return 0;
  return static_cast<int>(
      absl::c_count_if(request.server_address(), [&](const std::string& address) {
        return host(address) == host(request.server_address(own));
      }));
}

}  // namespace

ParameterServer::ParameterServer(const Options& options)
    : options_(options),
      started_(options.clock->Now()),
      push_budget_(options.receive_bytes),
      pull_budget_(options.send_bytes),
      backup_service_({options.files, options.dir, [this] {
                         HostedJob* const hosted = job();
                         return hosted == nullptr ? 0 : hosted->job_id();
                       }}) {}

absl::StatusOr<HelloReply> ParameterServer::Hello(const HelloRequest& request) {
  if (request.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this server speaks protocol version ", kProtocolVersion, ", the worker speaks ",
        request.protocol_version(), ": run the same release everywhere"));
  }
  {
    MutexLock lock(&mutex_);
    if (owned_job_ == nullptr) {
      if (request.continues() && options_.dir.empty()) return UnknownJob();
      absl::StatusOr<std::unique_ptr<HostedJob>> job = CreateJob(request);
      if (!job.ok()) return job.status();
      owned_job_ = *std::move(job);
      owned_job_->SetWake(options_.wake);
      job_.store(owned_job_.get(), std::memory_order_release);
    }
  }
  HostedJob* const hosted = job();
  const absl::Status same = hosted->CheckSame(request);
  if (!same.ok()) return same;
  HelloReply reply;
  reply.set_server_incarnation(options_.server_incarnation);
  LocatePeer(request);
  if (!request.only_restores()) {
    const absl::Status entered = hosted->Enter(request.slot(), request.incarnation(), &reply);
    if (!entered.ok()) return entered;
    if (TakesLong(request)) progress_.Begin("moves its values to shared memory");
    hosted->Share(request, &reply);
  }
  RecordAddress(request);
  return reply;
}

void ParameterServer::RecordAddress(const HelloRequest& request) {
  const int index = request.server_index();
  MutexLock lock(&identity_mutex_);
  if (!identity_.has_value()) {
    identity_.emplace();
    identity_->job_id = request.job_id();
    identity_->server_index = index;
    identity_->server_count = request.server_count();
  }
  if (request.server_address_size() != request.server_count()) return;
  if (identity_->address.empty()) identity_->address = request.server_address(index);
  if (!request.server_address(0).empty()) identity_->coordinator = request.server_address(0);
}

std::optional<ServerIdentity> ParameterServer::place() const {
  MutexLock lock(&identity_mutex_);
  return identity_;
}

void ParameterServer::Hello(const HelloRequest& request, Reply<HelloReply> reply) {
  {
    MutexLock lock(&pending_hellos_mutex_);
    if (stopped_) {
      reply(absl::UnavailableError("this server stops"));
      return;
    }
    const auto failure = failures_.find({request.slot(), request.incarnation()});
    if (failure != failures_.end() && !request.only_restores()) {
      const absl::Status status = failure->second;
      failures_.erase(failure);
      // If another Hello restored the job since, the failure is obsolete.
      if (job() == nullptr) {
        reply(status);
        return;
      }
    }
    // Restoring or sharing a large model takes seconds, and lease renewals must not wait for it.
    if (TakesLong(request)) {
      pending_hellos_.push_back({request, std::move(reply), options_.clock->Now()});
      if (is_greeting_) return;
      is_greeting_ = true;
      // The previous thread is at its end.
      if (hello_thread_.joinable()) hello_thread_.join();
      hello_thread_ = std::thread([this] { AnswerHellos(); });
      return;
    }
  }
  reply(Hello(request));
}

bool ParameterServer::TakesLong(const HelloRequest& request) const {
  HostedJob* const hosted = job();
  if (hosted == nullptr) return true;
  return request.has_shared_memory() && hosted->spec().wire().shared_memory() &&
         !hosted->store().shared();
}

void ParameterServer::AnswerHellos() {
  while (true) {
    const HelloRequest* request = nullptr;
    {
      MutexLock lock(&pending_hellos_mutex_);
      if (pending_hellos_.empty()) {
        is_greeting_ = false;
        return;
      }
      request = &pending_hellos_.front().request;
    }
    const absl::StatusOr<HelloReply> answer = Hello(*request);
    Reply<HelloReply> reply;
    {
      MutexLock lock(&pending_hellos_mutex_);
      reply = std::move(pending_hellos_.front().reply);
      if (reply == nullptr && !answer.ok() && !request->only_restores()) {
        failures_[{request->slot(), request->incarnation()}] = answer.status();
      }
      pending_hellos_.pop_front();
    }
    if (reply != nullptr) reply(answer);
  }
}

void ParameterServer::AnswerSlowHellos() {
  std::vector<Reply<HelloReply>> waiting;
  {
    MutexLock lock(&pending_hellos_mutex_);
    const absl::Duration now = options_.clock->Now();
    for (auto hello = pending_hellos_.begin(); hello != pending_hellos_.end();) {
      const bool is_under_way = hello == pending_hellos_.begin();
      if (hello->reply == nullptr || now - hello->since < kLongestSilence) {
        ++hello;
        continue;
      }
      waiting.push_back(std::exchange(hello->reply, nullptr));
      hello = is_under_way ? std::next(hello) : pending_hellos_.erase(hello);
    }
  }
  HelloReply busy;
  busy.set_server_incarnation(options_.server_incarnation);
  *busy.mutable_restoring() = progress_.Describe();
  for (const Reply<HelloReply>& reply : waiting) reply(busy);
}

absl::StatusOr<std::unique_ptr<HostedJob>> ParameterServer::CreateJob(const HelloRequest& request) {
  const DurabilitySpec::Level level = request.job().durability().level();
  progress_.Begin("makes room for the model");
  if (options_.dir.empty() || level == DurabilitySpec::NONE) {
    if (level == DurabilitySpec::LOG) {
      return absl::FailedPreconditionError(
          "durability.level is LOG, but this server has no directory for a push log; start it with "
          "--dir, or use the level CHECKPOINT");
    }
    const absl::StatusOr<std::shared_ptr<BackupPeer>> peer = FindPeer(request);
    if (!peer.ok()) return peer.status();
    return HostedJob::Create(request, options_.clock);
  }
  const absl::StatusOr<std::shared_ptr<BackupPeer>> peer = FindPeer(request);
  if (!peer.ok()) return peer.status();
  JobDirectory::Options options;
  options.files = options_.files;
  options.clock = options_.clock;
  options.path = options_.dir;
  options.servers_on_disk = CountServersHere(request);
  options.log = options_.log;
  options.progress = &progress_;
  options.peer = *peer;
  auto directory = std::make_unique<JobDirectory>(std::move(options));
  absl::StatusOr<std::unique_ptr<HostedJob>> job =
      HostedJob::Create(request, options_.clock, directory.get());
  if (!job.ok()) return job.status();
  directory_ = std::move(directory);
  checkpointer_ = std::make_unique<Checkpointer>(directory_.get());
  return job;
}

absl::StatusOr<std::shared_ptr<BackupPeer>> ParameterServer::FindPeer(const HelloRequest& request) {
  if (request.job().durability().copies() == 0) return std::shared_ptr<BackupPeer>();
  if (options_.dir.empty()) {
    return absl::FailedPreconditionError(
        "durability.copies is 1, but this server has no directory; start it with --dir, or leave "
        "copies out");
  }
  const absl::StatusOr<BackupLocation> place = GetBackupLocation(request);
  if (!place.ok()) return place.status();
  if (options_.reach_peer == nullptr) {
    return absl::FailedPreconditionError(
        "durability.copies is 1, but this server cannot connect to others; leave copies out");
  }
  std::shared_ptr<BackupPeer> peer = options_.reach_peer(place->index, place->address);
  MutexLock lock(&peer_mutex_);
  peer_ = peer;
  if (peer_is_over_) peer_->Cancel();
  return peer;
}

void ParameterServer::LocatePeer(const HelloRequest& request) {
  MutexLock lock(&peer_mutex_);
  if (peer_ == nullptr) return;
  const absl::StatusOr<BackupLocation> place = GetBackupLocation(request);
  if (place.ok()) peer_->Locate(place->address);
}

void ParameterServer::CopyBeside(const std::string& file) {
  if (job() == nullptr) return;
  MutexLock lock(&mutex_);
  if (directory_ != nullptr) directory_->CopyBeside(file);
}

absl::StatusOr<Checkpointer*> ParameterServer::CheckpointerFor(uint64_t job_id) {
  HostedJob* const hosted = job();
  // A restarted server gets the job from the first worker that reconnects.
  if (hosted == nullptr) return absl::UnavailableError("this server has no job yet");
  if (hosted->job_id() != job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server runs another job: '", hosted->spec().name(), "', number ",
                     hosted->job_id(), "; the caller's job is number ", job_id));
  }
  MutexLock lock(&mutex_);
  if (checkpointer_ != nullptr) return checkpointer_.get();
  return absl::FailedPreconditionError(
      options_.dir.empty() ? "this server has no directory for checkpoints; start it with --dir"
                           : "durability.level is NONE: this job is not saved");
}

void ParameterServer::WriteShard(const WriteShardRequest& request, Reply<ShardInfo> reply) {
  const absl::StatusOr<Checkpointer*> checkpointer = CheckpointerFor(request.job_id());
  if (!checkpointer.ok()) {
    reply(checkpointer.status());
    return;
  }
  if (request.checkpoint() == 0) {
    reply(absl::InvalidArgumentError("checkpoint is 0; expected at least 1"));
    return;
  }
  (*checkpointer)->WriteShard(request.checkpoint(), std::move(reply));
}

void ParameterServer::CommitCheckpoint(const CommitCheckpointRequest& request,
                                       Reply<CommitCheckpointReply> reply) {
  const absl::StatusOr<Checkpointer*> checkpointer = CheckpointerFor(request.job_id());
  if (!checkpointer.ok()) {
    reply(checkpointer.status());
    return;
  }
  (*checkpointer)->Commit(request, std::move(reply));
}

std::optional<JobDirectory::Unkept> ParameterServer::FindUnkept() {
  // While a restore runs, job() is null, and `mutex_` is held for long.
  if (job() == nullptr) return std::nullopt;
  MutexLock lock(&mutex_);
  return directory_ == nullptr ? std::nullopt : directory_->FindUnkept();
}

ParameterServer::~ParameterServer() { Stop(); }

void ParameterServer::Stop() {
  std::thread hello_thread;
  {
    MutexLock lock(&pending_hellos_mutex_);
    stopped_ = true;
    std::swap(hello_thread, hello_thread_);
  }
  {
    // Wakes the Hello thread, which may wait for the peer.
    MutexLock lock(&peer_mutex_);
    peer_is_over_ = true;
    if (peer_ != nullptr) peer_->Cancel();
  }
  if (hello_thread.joinable()) hello_thread.join();
  backup_service_.Stop();
  MutexLock lock(&mutex_);
  if (checkpointer_ != nullptr) checkpointer_->Stop();
}

absl::StatusOr<HostedJob*> ParameterServer::JobFor(uint64_t server_incarnation) const {
  HostedJob* const hosted = job();
  if (hosted == nullptr) {
    return absl::AbortedError("this server has no job yet; say Hello first");
  }
  if (server_incarnation != options_.server_incarnation) {
    return absl::AbortedError("this server has been restarted since; say Hello again");
  }
  return hosted;
}

absl::Status ParameterServer::PushFrame(HostedJob* job, const PushHeader& header,
                                        const FramePayload& payload) {
  const absl::Duration begun = options_.clock->Now();
  const absl::Status pushed = job->PushFrame(header, payload);
  if (options_.slow > 1) {
    absl::SleepFor((options_.clock->Now() - begun) * (options_.slow - 1));
  }
  return pushed;
}

ServerStatus ParameterServer::Describe(bool include_ledger) const {
  ServerStatus status;
  status.set_server_incarnation(options_.server_incarnation);
  status.set_uptime_ms(absl::ToInt64Milliseconds(options_.clock->Now() - started_));
  status.set_bytes_in(bytes_in_.load(std::memory_order_relaxed));
  status.set_bytes_out(bytes_out_.load(std::memory_order_relaxed));
  status.set_frame_bytes_held(push_budget_.held() + pull_budget_.held());
  status.set_receive_bytes_peak(push_budget_.share(PushBudget::Share::kWorking).high_water());
  status.set_send_bytes_peak(pull_budget_.high_water());
  if (HostedJob* const hosted = job(); hosted != nullptr) {
    hosted->Describe(include_ledger, &status);
  } else if (MutexLock lock(&pending_hellos_mutex_); is_greeting_) {
    *status.mutable_restoring() = progress_.Describe();
  }
  return status;
}

}  // namespace torchps
