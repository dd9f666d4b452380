#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/server/coordinator/coordinator_store.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Returns DATA_LOSS for a CoordinatorState that a coordinator cannot have saved. `words` describe
// the problem.
template <typename... Words>
absl::Status DamagedState(const Words&... words) {
  return absl::DataLossError(
      absl::StrCat("the saved state of the coordinator is invalid: ", words...));
}

// The state from which a job is resumed after all processes have ended.
struct ResumedState {
  CoordinatorState state;
  // Reasons for skipping newer checkpoints, one sentence each.
  std::vector<std::string> passed_over;
};

// Finds the coordinator state that matches the blocks that the restarted servers restore. Servers
// with a push log restore everything, so the latest coordinator state matches. Other servers
// restore the newest checkpoint, so the state in that checkpoint matches. Reads all shards of the
// checkpoint that are in the directory. Calls `on_shard` with the checkpoint number before each
// shard; an error from `on_shard` ends the search and is returned.
//   NOT_FOUND  the directory does not contain a state to resume from
//   DATA_LOSS  the contents of the directory are damaged
absl::StatusOr<ResumedState> FindResumedState(
    const CheckpointDirectory& directory, const CoordinatorStore& store,
    const std::function<absl::Status(uint64_t checkpoint)>& on_shard);

// Finds the state to resume a job from. Reads all shards on a separate thread, because that may
// last minutes and calls must be answered in the meantime.
//
// Thread-safe. `files` must outlive this.
class ResumeReader {
 public:
  // Starts reading.
  ResumeReader(FileSystem* files, std::string directory);
  // Stops the thread. Waits at most until the current shard is read.
  ~ResumeReader();
  ResumeReader(const ResumeReader&) = delete;
  ResumeReader& operator=(const ResumeReader&) = delete;

  struct Found {
    std::unique_ptr<CoordinatorStore> store;
    ResumedState resumed;
  };
  // Returns the result once; later calls return nullopt. Also returns nullopt while reading. Errors
  // are those of CoordinatorStore::Open and FindResumedState.
  std::optional<absl::StatusOr<Found>> Take();

  // Returns the current activity: "reads checkpoint 7".
  std::string Describe() const;

 private:
  absl::StatusOr<Found> Read();

  FileSystem* const files_;
  const std::string directory_;

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t checkpoint_ ABSL_GUARDED_BY(mutex_) = 0;  // being read; 0: none yet
  std::optional<absl::StatusOr<Found>> found_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace torchps
