#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/backup/backup_peer.h"
#include "server/backup/backup_service.h"
#include "server/job/checkpointer.h"
#include "server/job/hosted_job.h"
#include "server/job/job_directory.h"
#include "server/job/restore_progress.h"
#include "server/job/server_identity.h"
#include "server/parked/byte_budget.h"
#include "server/parked/replies.h"
#include "storage/file_system.h"

namespace torchps {

// A parameter server but for gRPC: no job at first, then one job for the rest of its life, which
// the first Hello brings along.
//
// Thread-safe. Owns its job.
class ParameterServer {
 public:
  struct Options {
    // Names this run of the process, so that a restarted server is not taken for the one it was;
    // not 0.
    uint64_t server_incarnation = 0;
    // The budgets of frames that are being received or applied, and of copies of blocks that are
    // being sent, each for all workers together.
    int64_t receive_bytes = 0;
    int64_t send_bytes = 0;
    // Applying a frame takes so many times as long as it does, at least 1: to see a server that
    // cannot keep up.
    double slow = 1;
    // Where the job is kept, and found again by the next life of this server. Empty: nowhere.
    std::string dir;
    // Takes lines for people: what was restored, and from where.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Hears in how long the job is to end rounds (HostedJob::EndRounds); may be null: then their
    // grace ends with the next call.
    std::function<void(absl::Duration delay)> wake;
    // How to reach the server that keeps copies of this one's files, as the workers say where it
    // is; null: not at all, and jobs with durability.copies are refused.
    std::function<std::shared_ptr<BackupPeer>(int index, const std::string& address)> reach_peer;
    // Outlive this object. Files are needed with `dir` only.
    const Clock* clock = nullptr;
    FileSystem* files = nullptr;
  };
  explicit ParameterServer(const Options& options);
  ~ParameterServer();

  // FAILED_PRECONDITION: other protocol, job, model or placement, naming the first difference; a
  // push log without a directory; a directory that another process or job has. INVALID_ARGUMENT:
  // the job cannot be. ABORTED: the slot belongs to a newer incarnation. DATA_LOSS: what the
  // directory has of the job is damaged. NOT_FOUND: the worker has seen the job's model here, and
  // this server knows nothing of it. The first one brings the blocks back from there, and takes as
  // long as that.
  absl::StatusOr<HelloReply> Hello(const HelloRequest& request);

  // The same for a caller that must not wait: what takes long is done on another thread, which
  // answers when it is done. UNAVAILABLE: the server stops.
  void Hello(const HelloRequest& request, Reply<HelloReply> reply);

  // Answers the greetings that have waited for a second with how far the server is, so that nobody
  // takes it for dead. To be called now and then.
  void AnswerSlowHellos();

  // The job, for a call that was meant for this life of the server. ABORTED: no job, or another
  // life.
  absl::StatusOr<HostedJob*> JobFor(uint64_t server_incarnation) const;

  // Of this life of the process.
  uint64_t server_incarnation() const { return options_.server_incarnation; }

  // Which server of which job this one is, and what workers have told of addresses: its own as the
  // first one found it, the coordinator's as the last one. None before the first Hello.
  std::optional<ServerIdentity> place() const ABSL_LOCKS_EXCLUDED(place_mutex_);

  // Null before the first Hello.
  HostedJob* job() const { return job_.load(std::memory_order_acquire); }

  // HostedJob::PushFrame, at the pace that Options asks for. With `slow` above 1 the thread waits
  // after the frame was applied, under no lock.
  absl::Status PushFrame(HostedJob* job, const PushHeader& header, const FramePayload& payload);

  // This server's part of a checkpoint, answered later (Checkpointer). UNAVAILABLE: no job yet;
  // FAILED_PRECONDITION: another job, or one that is not kept.
  void WriteShard(const WriteShardRequest& request, Reply<ShardInfo> reply);
  void CommitCheckpoint(const CommitCheckpointRequest& request, Reply<CommitCheckpointReply> reply);

  // Answers servers that have copies of their files here.
  BackupService& backup_service() { return backup_service_; }
  // A file that is no part of a checkpoint has been written to `dir`: it is copied, too, where the
  // job has copies.
  void CopyBeside(const std::string& file);

  // What would be lost if this process ended now, though the job is kept (JobDirectory).
  std::optional<JobDirectory::Unkept> FindUnkept();

  // Gives up the shard that is being written, and answers the calls that wait for it or for the job
  // to be brought back, which it waits for. Idempotent.
  void Stop();

  ByteBudget& receive_budget() { return receive_budget_; }
  ByteBudget& send_budget() { return send_budget_; }
  // Half as large as the first: of pushes that have stalled and stood aside for others
  // (server/data_plane/open_pushes.h).
  ByteBudget& stalled_budget() { return stalled_budget_; }
  // An eighth of the first: of first frames that come on connections on which no worker has spoken
  // yet (server/data_plane/verified_connections.h).
  ByteBudget& unauthenticated_budget() { return unauthenticated_budget_; }
  const Clock& clock() const { return *options_.clock; }

  ServerStatus Describe(bool include_ledger) const;

  // Traffic of frames, for the status.
  void CountReceived(uint64_t bytes) { bytes_in_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountSent(uint64_t bytes) { bytes_out_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  const Options options_;
  const absl::Duration started_;
  ByteBudget receive_budget_;
  ByteBudget send_budget_;
  ByteBudget stalled_budget_;
  ByteBudget unauthenticated_budget_;
  std::atomic<uint64_t> bytes_in_{0};
  std::atomic<uint64_t> bytes_out_{0};

  struct PendingHello {
    HelloRequest request;
    Reply<HelloReply> reply;  // null: it was told to come again
    absl::Duration since;
  };
  // Whether this greeting may take long: it brings the job back or makes room for it, or moves the
  // values to where workers of this machine can read them.
  bool TakesLong(const HelloRequest& request) const;
  // Answers all greetings that take long, one after the other.
  void AnswerHellos();

  void RecordAddress(const HelloRequest& request) ABSL_LOCKS_EXCLUDED(place_mutex_);

  absl::StatusOr<std::unique_ptr<HostedJob>> CreateJob(const HelloRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Who keeps the copies; null where the job has none. FAILED_PRECONDITION: it cannot have them.
  absl::StatusOr<std::shared_ptr<BackupPeer>> FindPeer(const HelloRequest& request)
      ABSL_LOCKS_EXCLUDED(peer_mutex_);
  // The workers may say that it has moved.
  void LocatePeer(const HelloRequest& request) ABSL_LOCKS_EXCLUDED(peer_mutex_);
  // What writes this job's shards; or why nothing does, as the two calls above say.
  absl::StatusOr<Checkpointer*> CheckpointerFor(uint64_t job_id);

  mutable Mutex pending_hellos_mutex_;
  // The first one is under way. A list: it stays where it is while others come and go.
  std::list<PendingHello> pending_hellos_ ABSL_GUARDED_BY(pending_hellos_mutex_);
  // What became of those that were told to come again, for when they do: errors only.
  std::map<std::pair<SlotId, Incarnation>, absl::Status> failures_
      ABSL_GUARDED_BY(pending_hellos_mutex_);
  bool is_greeting_ ABSL_GUARDED_BY(pending_hellos_mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(pending_hellos_mutex_) = false;
  std::thread hello_thread_ ABSL_GUARDED_BY(pending_hellos_mutex_);
  RestoreProgress progress_;
  BackupService backup_service_;

  Mutex peer_mutex_;
  std::shared_ptr<BackupPeer> peer_ ABSL_GUARDED_BY(peer_mutex_);
  bool peer_is_over_ ABSL_GUARDED_BY(peer_mutex_) = false;

  mutable Mutex place_mutex_;
  std::optional<ServerIdentity> place_ ABSL_GUARDED_BY(place_mutex_);

  // Set once under the mutex, then read without it.
  std::atomic<HostedJob*> job_{nullptr};
  Mutex mutex_;
  // Null where the job is not kept. The job uses the directory and the checkpointer both.
  std::unique_ptr<JobDirectory> directory_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HostedJob> owned_job_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Checkpointer> checkpointer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
