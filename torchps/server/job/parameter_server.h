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
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/backup/backup_service.h"
#include "torchps/server/job/checkpointer.h"
#include "torchps/server/job/hosted_job.h"
#include "torchps/server/job/job_directory.h"
#include "torchps/server/job/job_parts.h"
#include "torchps/server/parked/byte_budget.h"
#include "torchps/server/parked/push_budget.h"
#include "torchps/server/parked/replies.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Implements a parameter server without gRPC. It starts without a job; the first Hello brings the
// job that it serves until the process ends.
//
// Thread-safe. Owns its job.
class ParameterServer {
 public:
  struct Options {
    // Identifies this run of the process, so that workers detect a restart. Not 0.
    uint64_t server_incarnation = 0;
    // Memory budgets in bytes, each for all workers together: the capacity of the PushBudget, and
    // the limit for copies of blocks being sent.
    int64_t receive_bytes = 0;
    int64_t send_bytes = 0;
    // Multiplies the time to apply a frame, at least 1. Simulates a server that cannot keep up.
    double slow = 1;
    // The directory that keeps the job across restarts of this server. Empty: the job is not saved.
    std::string dir;
    // Receives lines for people, for example a restored checkpoint.
    LogLine log = IgnoreLine;
    // Receives the delay after which HostedJob::MakeDueUpdates should run. May be null; due updates
    // then wait for the next periodic call.
    std::function<void(absl::Duration delay)> wake;
    // Connects to the server that keeps the backup of this server's files, at the address that
    // workers report. Null: jobs with durability.copies are refused.
    std::function<std::shared_ptr<BackupPeer>(int index, const std::string& address)> reach_peer;
    // Outlive this object. `files` is needed only with `dir`.
    const Clock* clock = nullptr;
    FileSystem* files = nullptr;
  };
  explicit ParameterServer(const Options& options);
  ~ParameterServer();

  // Registers a worker's slot, unless request.only_restores is set. The first Hello also creates or
  // restores the job, which may take long.
  //
  // FAILED_PRECONDITION: the protocol, job, model or placement differs (the message names the first
  // difference), the job needs a push log but the server runs without a directory, or another
  // process or job uses the directory. INVALID_ARGUMENT: the job is invalid. ABORTED: a newer
  // incarnation owns the slot. DATA_LOSS: the saved job is damaged. NOT_FOUND: the worker saw the
  // job's model here, but this server does not know the job.
  absl::StatusOr<HelloReply> Hello(const HelloRequest& request);

  // Does the same for a caller that must not block: slow work runs on another thread, which replies
  // later. UNAVAILABLE: the server is stopping.
  void Hello(const HelloRequest& request, Reply<HelloReply> reply);

  // Replies with the restore progress to Hellos that have waited for a second, so that workers do
  // not consider the server dead. Must be called periodically.
  void AnswerSlowHellos();

  // Returns the job for a call that targets this server incarnation. ABORTED: the server is without
  // a job, or the call targets another incarnation.
  absl::StatusOr<HostedJob*> JobFor(uint64_t server_incarnation) const;

  // The incarnation from Options.
  uint64_t server_incarnation() const { return options_.server_incarnation; }

  // This server's identity, with the addresses that workers reported: the server's address from the
  // first worker, the coordinator's from the latest. Empty before the first Hello.
  std::optional<ServerIdentity> place() const ABSL_LOCKS_EXCLUDED(identity_mutex_);

  // Null before the first Hello.
  HostedJob* job() const { return job_.load(std::memory_order_acquire); }

  // Calls HostedJob::PushFrame, then sleeps if Options.slow is above 1. Does not sleep under a
  // lock.
  absl::Status PushFrame(HostedJob* job, const PushHeader& header, const FramePayload& payload);

  // Write this server's part of a checkpoint and reply later (Checkpointer). UNAVAILABLE: the
  // server is still without a job. FAILED_PRECONDITION: the request is for another job, or the job
  // is not saved.
  void WriteShard(const WriteShardRequest& request, Reply<ShardInfo> reply);
  void CommitCheckpoint(const CommitCheckpointRequest& request, Reply<CommitCheckpointReply> reply);

  // Serves other servers that keep their backup here.
  BackupService& backup_service() { return backup_service_; }
  // Backs up a file in `dir` that is not part of a checkpoint, if the job has a backup.
  void CopyBeside(const std::string& file);

  // Returns the block changes that would be lost if this process ended now. Returns nullopt if
  // there are none, or if the job is not saved at all.
  std::optional<JobDirectory::Unkept> FindUnkept();

  // Gives up the shard that is being written, and replies to the calls that wait for it or for the
  // job's restore. Waits for a restore in progress. Idempotent.
  void Stop();

  PushBudget& push_budget() { return push_budget_; }
  // For copies of blocks being sent.
  ByteBudget& pull_budget() { return pull_budget_; }
  const Clock& clock() const { return *options_.clock; }

  ServerStatus Describe(bool include_ledger) const;

  // Count frame bytes for the status.
  void CountReceived(uint64_t bytes) { bytes_in_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountSent(uint64_t bytes) { bytes_out_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  const Options options_;
  const absl::Duration started_;
  PushBudget push_budget_;
  ByteBudget pull_budget_;
  std::atomic<uint64_t> bytes_in_{0};
  std::atomic<uint64_t> bytes_out_{0};

  struct PendingHello {
    HelloRequest request;
    Reply<HelloReply> reply;  // null after a "still restoring" reply
    absl::Duration since;
  };
  // True if this Hello may take long, because it restores the job, allocates memory for it, or
  // moves the values to shared memory.
  bool TakesLong(const HelloRequest& request) const;
  // Answers the queued slow Hellos one after the other.
  void AnswerHellos();

  void RecordAddress(const HelloRequest& request) ABSL_LOCKS_EXCLUDED(identity_mutex_);

  absl::StatusOr<std::unique_ptr<HostedJob>> CreateJob(const HelloRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the server that keeps the backup; null without one. FAILED_PRECONDITION: the job needs
  // a backup but cannot have one.
  absl::StatusOr<std::shared_ptr<BackupPeer>> FindPeer(const HelloRequest& request)
      ABSL_LOCKS_EXCLUDED(peer_mutex_);
  // Updates the peer's address if workers report a new one.
  void LocatePeer(const HelloRequest& request) ABSL_LOCKS_EXCLUDED(peer_mutex_);
  // Returns the checkpointer of this job. Errors as WriteShard().
  absl::StatusOr<Checkpointer*> CheckpointerFor(uint64_t job_id);

  mutable Mutex pending_hellos_mutex_;
  // The first entry is in progress. The list keeps it in place while other entries are added or
  // removed.
  std::list<PendingHello> pending_hellos_ ABSL_GUARDED_BY(pending_hellos_mutex_);
  // Errors of Hellos that got a "still restoring" reply; returned when the worker retries.
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

  mutable Mutex identity_mutex_;
  std::optional<ServerIdentity> identity_ ABSL_GUARDED_BY(identity_mutex_);

  // Set once under `mutex_`, then read without it.
  std::atomic<HostedJob*> job_{nullptr};
  Mutex mutex_;
  // Null if the job is not saved. The job and the checkpointer use the directory.
  std::unique_ptr<JobDirectory> directory_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HostedJob> owned_job_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Checkpointer> checkpointer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
