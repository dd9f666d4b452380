#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/job/job_directory.h"
#include "torchps/server/parked/replies.h"

namespace torchps {

// Writes a server's shards on a separate thread, one at a time. Calls that ask for a shard wait
// without a thread, and training continues.
//
// Thread-safe. Replies run on the checkpointer's thread, or before the call returns. Borrows the
// directory.
class Checkpointer {
 public:
  explicit Checkpointer(JobDirectory* directory);
  // Calls Stop().
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Replies when the shard is on disk. If the shard of this checkpoint is being written or was the
  // last one written, does not write it again. ALREADY_EXISTS: the shard of another checkpoint is
  // being written. UNAVAILABLE: the server is stopping. Otherwise as JobDirectory::WriteShard.
  void WriteShard(uint64_t checkpoint, Reply<ShardInfo> reply);

  // Replies when the checkpoint's manifest is on disk and superfluous files are removed.
  // UNAVAILABLE: the server is stopping. Otherwise as JobDirectory::Commit.
  void Commit(const CommitCheckpointRequest& request, Reply<CommitCheckpointReply> reply);

  // Gives up the shard that is being written, and replies UNAVAILABLE to the calls that wait.
  // Idempotent.
  void Stop();

 private:
  void Work();

  JobDirectory* const directory_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The checkpoint of the shard that is queued or being written, and the calls that wait for that
  // shard.
  std::optional<uint64_t> writing_ ABSL_GUARDED_BY(mutex_);
  std::vector<Reply<ShardInfo>> waiting_ ABSL_GUARDED_BY(mutex_);
  // The checkpoint of the last shard that was written.
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;
  ShardInfo written_info_ ABSL_GUARDED_BY(mutex_);
  struct PendingCommit {
    CommitCheckpointRequest request;
    Reply<CommitCheckpointReply> reply;
  };
  std::deque<PendingCommit> commits_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace torchps
