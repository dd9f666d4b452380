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

// Finds what a job is resumed from, on a thread of its own: all shards are read for it, which may
// take minutes, and calls are answered meanwhile.
//
// Thread-safe. Borrows the files.
class ResumeReader {
 public:
  // Begins to read.
  ResumeReader(FileSystem* files, std::string directory);
  // Waits for the end, at most for that of the shard that is being read.
  ~ResumeReader();
  ResumeReader(const ResumeReader&) = delete;
  ResumeReader& operator=(const ResumeReader&) = delete;

  struct Found {
    std::unique_ptr<CoordinatorStore> store;
    ResumedState resumed;
  };
  // What was found, once: errors as CoordinatorStore::Open and FindResumedState. Null while it is
  // not found yet.
  std::optional<absl::StatusOr<Found>> Take();

  // What it is at: "reads checkpoint 7".
  std::string Describe() const;

 private:
  absl::StatusOr<Found> Read();

  FileSystem* const files_;
  const std::string directory_;

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t checkpoint_ ABSL_GUARDED_BY(mutex_) = 0;  // that is being read; 0: none yet
  std::optional<absl::StatusOr<Found>> found_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace torchps
