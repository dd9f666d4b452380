#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"
#include "server/job/job_directory.h"
#include "server/parked/replies.h"

namespace torchps {

// The thread that writes a server's shards, one at a time, so that a call that asks for one waits
// without a thread, and training goes on beside it.
//
// Thread-safe. Answers are given on its thread, or at once. Borrows the directory.
class Checkpointer {
 public:
  explicit Checkpointer(JobDirectory* directory);
  // Stops.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Answers when the shard is on the disk. The shard that was written last, and the one that is
  // being written, are not written again. ALREADY_EXISTS: another checkpoint's is being written;
  // UNAVAILABLE: the server stops; otherwise as JobDirectory::WriteShard.
  void WriteShard(uint64_t checkpoint, Reply<ShardInfo> reply);

  // Answers when the disk has the checkpoint's manifest and no longer what is superfluous. Errors
  // as JobDirectory::Commit; UNAVAILABLE: the server stops.
  void Commit(const CommitCheckpointRequest& request, Reply<CommitCheckpointReply> reply);

  // Answers what waits with UNAVAILABLE; the shard that is being written is given up. Idempotent.
  void Stop();

 private:
  void Work();

  JobDirectory* const directory_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The shard that is to be written or is being written, and the calls that wait for it.
  std::optional<uint64_t> writing_ ABSL_GUARDED_BY(mutex_);
  std::vector<Reply<ShardInfo>> waiting_ ABSL_GUARDED_BY(mutex_);
  // The last one that was.
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
