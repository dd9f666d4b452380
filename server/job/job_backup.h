#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_directory.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/backup/backup_peer.h"
#include "server/backup/backup_replicator.h"
#include "server/job/restore_progress.h"
#include "server/push_log/job_log.h"

namespace torchps {

// Which files of a server's directory another server keeps copies of, and when (durability.copies):
// the server's shards with their manifests, its push log, and what the coordinator keeps beside
// them where that is this server.
//
// Thread-safe after Start().
class JobBackup {
 public:
  struct Options {
    // Who has the copies. Not null.
    std::shared_ptr<BackupPeer> peer;
    const Clock* clock = nullptr;         // outlives this
    RestoreProgress* progress = nullptr;  // borrowed; may be null
    // Takes one line for people.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    uint64_t job_id = 0;
    int server_index = 0;
    int server_count = 1;
  };
  // `directory` outlives this.
  JobBackup(const CheckpointDirectory* directory, Options options);
  // Stops.
  ~JobBackup() { Stop(); }

  // Brings the files back if the directory has nothing of this server (`is_lost`), or a try to do
  // so was broken off. UNAVAILABLE: the peer cannot be asked, and nobody knows what it has;
  // otherwise as BackupFetch::Run().
  absl::Status FetchIfLost(bool is_lost);

  // Copies from now on all that is there and all that comes. `log` is null where there is none; it
  // outlives Stop().
  void Start(JobLog* log);
  // The log has been written. May come before Start().
  void Wake();

  // Return when the copy is there, that of a shard with the log of all that is in it. As
  // BackupReplicator::Keep().
  absl::Status KeepShard(uint64_t checkpoint);
  absl::Status KeepCheckpoint(uint64_t checkpoint);
  // Copies of shards and manifests that are not in the directory any more go.
  void Prune();
  // A file beside the checkpoints has been written.
  void Send(const std::string& file);

  void Describe(DurabilityStatus* status) const;

  // Lets KeepShard() and KeepCheckpoint() end, with CANCELLED.
  void Abandon();
  // Nothing is copied any more, and the log hears nothing. Idempotent.
  void Stop();

 private:
  // Of checkpoints; and what else there is.
  BackupReplicator::Kept OwnFiles() const;
  std::vector<std::string> FilesBeside() const;
  std::string ShardFile(uint64_t checkpoint) const;
  // Below the directory.
  std::string GetName(const std::string& path) const;

  const CheckpointDirectory& directory_;
  const Options options_;
  std::unique_ptr<BackupReplicator> sender_;
  // The same once it is there, for the log's thread.
  std::atomic<BackupReplicator*> started_{nullptr};
  Mutex mutex_;
  std::set<std::string> beside_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
