#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/shard_writer.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/common/process/system_random.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/job/job_backup.h"
#include "torchps/server/job/job_parts.h"
#include "torchps/server/push_log/job_log.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/job_storage.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Returns NOT_FOUND, the error of a server that should know a job and does not.
absl::Status UnknownJob();

// Stores one server's part of a job on disk, in the directory that ps_server --dir names. Restores
// the blocks when the job begins, and writes them as shards of checkpoints while the job runs.
//
// Thread-safe, but one thread (Checkpointer) makes all calls to WriteShard() and Commit(). Holds a
// lock that keeps other processes from running as this server in this directory.
class JobDirectory final : public JobStorage {
 public:
  struct Options {
    // Borrowed.
    FileSystem* files = nullptr;
    const Clock* clock = nullptr;
    std::string path;
    // Number of servers that may share the disk; 0: all of the job.
    int servers_on_disk = 0;
    // False: the caller runs WriteLog() and CopyStep(), as the simulator does.
    bool has_threads = true;
    std::function<uint64_t()> draw_salt = SystemRandom;  // as PushLog::Options
    // Receives one line for people: a restored or skipped checkpoint, with the reason.
    LogLine log = IgnoreLine;
    // Receives the progress of Open(). Borrowed; may be null.
    RestoreProgress* progress = nullptr;
    // The server that keeps the backup of this directory; null without a backup.
    std::shared_ptr<BackupPeer> peer;
  };
  explicit JobDirectory(Options options);
  ~JobDirectory() override;

  // Restores the blocks. If the job has a backup and this directory is empty, fetches the backup
  // first. FAILED_PRECONDITION: another process runs as this server here, or the directory belongs
  // to another job. Otherwise as JobStorage, FileSystem and JobBackup::FetchIfLost.
  absl::StatusOr<std::optional<Origin>> Open(const JobShare& share, ParameterStore* store) override;
  BlockJournal* journal() override { return log_.get(); }
  void Describe(DurabilityStatus* status) override;
  bool wants_checkpoint() const override { return log_ != nullptr && log_->wants_checkpoint(); }

  // Changes to this server's blocks that are in no checkpoint.
  struct Unkept {
    uint64_t checkpoint = 0;  // the last complete checkpoint; 0: none
    int64_t changes = 0;      // block changes since then
    // The address of server 0 when that checkpoint was taken; empty: unknown.
    std::string coordinator;
  };
  // Returns nullopt if a restart of this server would not lose anything.
  // REQUIRES: Open() returned OK.
  std::optional<Unkept> FindUnkept();

  // Copies and writes the blocks one after the other, each with the values at the moment of its
  // copy. Removes shards of failed checkpoints first, so that at most one unfinished shard takes
  // space. With a push log, the log and its backup contain all changes in the shard when this
  // returns.
  //
  // CANCELLED: Abandon() was called. FAILED_PRECONDITION: a block has no values yet.
  // RESOURCE_EXHAUSTED: the disk is too small for the shard, and writing did not begin.
  // UNAVAILABLE: the backup failed. Otherwise as FileSystem; the shard is removed then. REQUIRES:
  // Open() returned OK; no lower-numbered checkpoint is in progress.
  absl::StatusOr<ShardInfo> WriteShard(uint64_t checkpoint);

  // Records that the checkpoint is complete, by writing the manifest here and to the backup. If all
  // servers have the manifest, reads the checkpoint back and then removes the files that it
  // supersedes. INVALID_ARGUMENT: this is not the checkpoint's manifest. FAILED_PRECONDITION: the
  // shard was written before a restart that rolled it back, or was removed for a later checkpoint.
  // Otherwise as FileSystem.
  // REQUIRES: Open() returned OK.
  absl::Status Commit(const CommitCheckpointRequest& request);

  // Writes a group to the push log if the log runs without a thread. As PushLog::WriteGroup;
  // returns false without a log.
  absl::StatusOr<bool> WriteLog() { return log_ == nullptr ? false : log_->WriteGroup(); }

  // Makes one step of copying to the backup if it runs without a thread. As BackupReplicator::Step;
  // returns false without a backup.
  absl::StatusOr<bool> CopyStep() { return copies_ == nullptr ? false : copies_->Step(); }

  // Copies a file that is not part of a checkpoint to the backup.
  // REQUIRES: Open() returned OK.
  void CopyBeside(const std::string& file) {
    if (copies_ != nullptr) copies_->Send(file);
  }

  // Makes a WriteShard() in progress end soon.
  void Abandon();

 private:
  // True if this server replayed the whole push log. Shards from before the restart then belong to
  // the same history.
  bool goes_on_from_log() const { return log_ != nullptr && log_->existed(); }
  // Does the work of Open() after the backup is fetched.
  absl::StatusOr<std::optional<Origin>> OpenOwn(const JobShare& share);
  absl::StatusOr<std::optional<Origin>> RestoreNewest(const JobShare& share);
  void Begin(std::string what, int64_t total = 0) {
    if (options_.progress != nullptr) options_.progress->Begin(std::move(what), total);
  }
  bool HasLog(const JobShare& share) const;
  // Replays the push log on top of the restored checkpoint, and journals to the log from now on.
  absl::StatusOr<std::optional<Origin>> OpenLog(const JobShare& share,
                                                const std::optional<Origin>& checkpoint);
  absl::StatusOr<ShardInfo> TryWriteShard(uint64_t checkpoint);
  ShardHeader HeaderFor(uint64_t checkpoint) const;
  std::vector<ShardBlock> OwnBlocks() const;
  // RESOURCE_EXHAUSTED if the disk has less than `bytes` free.
  absl::Status CheckRoom(uint64_t checkpoint, int64_t bytes) const;
  absl::Status TryCommit(const CommitCheckpointRequest& request);
  // Records the result of the last write for Describe().
  void Note(const absl::Status& status);

  const Options options_;
  const CheckpointDirectory directory_;
  std::atomic<bool> abandoned_{false};

  // Set by Open().
  std::unique_ptr<FileLock> lock_;
  uint64_t job_id_ = 0;
  int server_index_ = 0;
  int server_count_ = 0;
  ParameterStore* store_ = nullptr;
  Origin origin_;
  // Null without a backup. The backup and the log use each other.
  std::unique_ptr<JobBackup> copies_;
  // Null unless durability is LOG. The log's thread uses the store.
  std::unique_ptr<JobLog> log_;
  // For each checkpoint: the sequence of the last log record that its shard makes superfluous. Used
  // only by the checkpointer's thread.
  std::map<uint64_t, uint64_t> covered_;
  uint64_t written_ = 0;         // the last checkpoint with a shard from this process
  int64_t written_changes_ = 0;  // block changes in that shard
  // Allocated for the first shard, then reused.
  std::unique_ptr<BlockCopy> copy_;

  Mutex mutex_;
  // The last complete checkpoint; 0: none.
  uint64_t committed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t committed_changes_ ABSL_GUARDED_BY(mutex_) = 0;  // block changes in its shard
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
