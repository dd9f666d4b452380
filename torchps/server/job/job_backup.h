#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_fetch.h"
#include "torchps/server/backup/backup_mirror.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/backup/backup_replicator.h"
#include "torchps/server/job/job_parts.h"
#include "torchps/server/push_log/job_log.h"
#include "torchps/server/push_log/push_log.h"

namespace torchps {

// Backs up a server's files to another server (durability.copies): shards with manifests, the push
// log and, on server 0, the coordinator's files.
//
// Thread-safe after Start().
class JobBackup final : public LogCopier, private CopiedLog {
 public:
  struct Options {
    // The server that keeps the backup. Not null.
    std::shared_ptr<BackupPeer> peer;
    const Clock* clock = nullptr;         // outlives this object
    RestoreProgress* progress = nullptr;  // borrowed; may be null
    // Receives one line for people.
    LogLine log = IgnoreLine;
    uint64_t job_id = 0;
    int server_index = 0;
    int server_count = 1;
    bool has_thread = true;  // as BackupReplicator::Options
  };
  // `directory` outlives this object.
  JobBackup(const CheckpointDirectory* directory, Options options);
  // Calls Stop().
  ~JobBackup() override { Stop(); }

  // Fetches the files from the backup if `is_lost` or if an earlier fetch was interrupted.
  // `is_lost` is true if the directory contains none of this server's files. UNAVAILABLE: the peer
  // cannot be reached, so the backup's files are unknown. Otherwise as BackupFetch::Run().
  absl::Status FetchIfLost(bool is_lost);
  // Looks at the checkpoints after `restored`. Replaces damaged manifests, and damaged shards of
  // this server, by their copies. Returns true if at least one file was replaced. UNAVAILABLE: the
  // peer or a disk failed.
  absl::StatusOr<bool> ReplaceDamagedCheckpoints(uint64_t restored);
  // Replaces the push log by its copy, if that is intact, complete, and has records after
  // `last_sequence`. As JobLog::Options::replace.
  absl::StatusOr<bool> ReplaceLog(const LogIdentity& identity, uint64_t last_sequence,
                                  const absl::StatusOr<LogEnd>& end);

  // Starts to copy existing files and later changes. `log` may be null; it outlives Stop().
  void Start(JobLog* log);
  // Continues to copy the log. May be called before Start().
  void Wake() override;

  // KeepShard() blocks until the backup holds the shard and the log records of the changes in it.
  // KeepCheckpoint() blocks until it holds the shard and the manifest. Errors as
  // BackupReplicator::Keep().
  absl::Status KeepShard(uint64_t checkpoint);
  absl::Status KeepCheckpoint(uint64_t checkpoint);
  // Removes from the backup the shards and manifests that are no longer in the directory.
  void Prune();
  // Copies a file that is not part of a checkpoint.
  void Send(const std::string& file);

  // As BackupReplicator::Step(). Returns false before Start().
  absl::StatusOr<bool> Step();

  void Describe(DurabilityStatus* status) const;

  // Makes KeepShard() and KeepCheckpoint() return CANCELLED.
  void Abandon();
  // Stops copying and reporting to the log. Idempotent.
  void Stop() override;

 private:
  BackupFetch::Options FetchOptions() const;
  // Returns whether the file was replaced; false if there is no intact copy.
  absl::StatusOr<bool> ReplaceFile(const std::string& path, std::optional<uint32_t> crc32c);

  // CopiedLog.
  GrowingLog GetExtent() const override;
  void RaiseCopied(uint64_t position) override { log_->RaiseCopied(position); }

  // OwnFiles() returns this server's files in checkpoints. FilesBeside() returns, on server 0, the
  // coordinator's state and model files.
  BackupReplicator::Kept OwnFiles() const;
  std::vector<std::string> FilesBeside() const;
  std::string ShardFile(uint64_t checkpoint) const;
  std::string LogFolder() const;
  // Returns the path relative to the directory.
  std::string GetName(const std::string& path) const;

  const CheckpointDirectory& directory_;
  const Options options_;
  JobLog* log_ = nullptr;  // set by Start()
  std::unique_ptr<BackupReplicator> sender_;
  // Points to `sender_` after Start(); the log's thread reads it.
  std::atomic<BackupReplicator*> started_{nullptr};
  Mutex mutex_;
  std::set<std::string> extra_files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
