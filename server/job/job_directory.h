#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_directory.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/process/system_random.h"
#include "proto/parameter_service.pb.h"
#include "server/backup/backup_peer.h"
#include "server/job/job_backup.h"
#include "server/job/restore_progress.h"
#include "server/push_log/job_log.h"
#include "server/store/block_copy.h"
#include "server/store/job_storage.h"
#include "storage/file_system.h"

namespace torchps {

// The error of a server that is to know a job and does not: NOT_FOUND.
absl::Status UnknownJob();

// One server's part of a job on a disk, in the directory that ps_server --dir names: brings the
// blocks back when the job begins, and writes them as shards of checkpoints while it runs.
//
// Thread-safe, but WriteShard() and Commit() are one thread's (Checkpointer). No other process
// works as this server in this directory as long as the object lives.
class JobDirectory final : public JobStorage {
 public:
  struct Options {
    // Borrowed.
    FileSystem* files = nullptr;
    const Clock* clock = nullptr;
    std::string path;
    // Without, the caller runs WriteLog(), as the simulator does.
    bool has_log_thread = true;
    std::function<uint64_t()> draw_salt = SystemRandom;  // as PushLog
    // Takes one line for people: what was restored, what was passed over and why.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Hears how far Open() is. Borrowed; null: nobody asks.
    RestoreProgress* progress = nullptr;
    // The server that keeps copies of what is here; null: none does.
    std::shared_ptr<BackupPeer> peer;
  };
  explicit JobDirectory(Options options);
  ~JobDirectory() override;

  // Where another server keeps copies, and there is nothing of this server here, they are brought
  // here first. FAILED_PRECONDITION: another process is this server here, or the directory is of
  // another job; otherwise as JobStorage, FileSystem and JobBackup::FetchIfLost.
  absl::StatusOr<std::optional<Origin>> Open(const JobShare& share, ParameterStore* store) override;
  BlockJournal* journal() override { return log_.get(); }
  void Describe(DurabilityStatus* status) override;

  // What of this server's blocks no checkpoint has.
  struct Unkept {
    uint64_t checkpoint = 0;  // the last one that is complete here; 0: none
    int64_t changes = 0;      // of blocks since that
    // Where workers found server 0 when that was taken; empty: not known.
    std::string coordinator;
  };
  // None: nothing that a life that follows this one will lack. REQUIRES: Open() was OK.
  std::optional<Unkept> FindUnkept();

  // Writes all blocks, one after the other, each as it is when its turn comes. What earlier
  // checkpoints that failed have left goes first, so that all of them together leave the shard of
  // one. CANCELLED: Abandon() was called; FAILED_PRECONDITION: a block has no values yet;
  // RESOURCE_EXHAUSTED, before anything is written: the disk has no room for it; UNAVAILABLE: no
  // copy can be made of it; otherwise as FileSystem, after which nothing is left of the shard. With
  // a push log, all that is in the shard is in the log when this returns; where there are copies,
  // so it is there. REQUIRES: Open() was OK; no lower checkpoint is under way.
  absl::StatusOr<ShardInfo> WriteShard(uint64_t checkpoint);

  // The checkpoint is complete: its manifest is kept here too. Once all servers keep it, what it
  // makes superfluous goes, but nothing unless the checkpoint has been read back. INVALID_ARGUMENT:
  // no manifest of this checkpoint; FAILED_PRECONDITION: its shard is of an earlier life, behind
  // which this one has gone back, or was removed for a later one; otherwise as FileSystem.
  // Where there are copies, they have it too. REQUIRES: Open() was OK.
  absl::Status Commit(const CommitCheckpointRequest& request);

  // What the push log's thread does, where it has none. As PushLog::WriteGroup; false without a
  // log.
  absl::StatusOr<bool> WriteLog() { return log_ == nullptr ? false : log_->WriteGroup(); }

  // A file that is no part of a checkpoint has been written here: it is copied, too. REQUIRES:
  // Open() was OK.
  void CopyBeside(const std::string& file) {
    if (copies_ != nullptr) copies_->Send(file);
  }

  // Lets a WriteShard() that is under way end soon.
  void Abandon();

 private:
  // Whether this life has done again all that the one before had logged, so that whatever that one
  // has written is of the same history.
  bool goes_on_from_log() const { return log_ != nullptr && log_->existed(); }
  // Open(), but for the copies.
  absl::StatusOr<std::optional<Origin>> OpenOwn(const JobShare& share);
  absl::StatusOr<std::optional<Origin>> RestoreNewest(const JobShare& share);
  void Begin(std::string what, int64_t total = 0) {
    if (options_.progress != nullptr) options_.progress->Begin(std::move(what), total);
  }
  bool HasLog(const JobShare& share) const;
  // Brings the blocks from where the checkpoint has them to the end of the push log, and journals
  // into it from now on.
  absl::StatusOr<std::optional<Origin>> OpenLog(const JobShare& share,
                                                const std::optional<Origin>& checkpoint);
  absl::StatusOr<ShardInfo> TryWriteShard(uint64_t checkpoint);
  // RESOURCE_EXHAUSTED: the disk has less room than so many bytes.
  absl::Status CheckRoom(uint64_t checkpoint, int64_t bytes) const;
  absl::Status TryCommit(const CommitCheckpointRequest& request);
  // Remembers the outcome of the last write for Describe().
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
  // Null: there are none. Used by the log, and uses it.
  std::unique_ptr<JobBackup> copies_;
  // With durability LOG only; its thread uses the store.
  std::unique_ptr<JobLog> log_;
  // By checkpoint: the last record of the log that its shard makes superfluous. Of the thread that
  // writes shards.
  std::map<uint64_t, uint64_t> covered_;
  uint64_t written_ = 0;         // the last checkpoint of which this life has written a shard
  int64_t written_changes_ = 0;  // of all blocks, that are in it
  // Made for the first shard, and used for all of them.
  std::unique_ptr<BlockCopy> copy_;

  Mutex mutex_;
  uint64_t committed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t committed_changes_ ABSL_GUARDED_BY(mutex_) = 0;  // that are in that one
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
