#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/coordinator/coordinator_store.h"
#include "server/coordinator/resumed_state.h"
#include "storage/file_system.h"

namespace torchps {

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
