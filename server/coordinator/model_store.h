#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/types.h"
#include "proto/coordinator.pb.h"
#include "storage/file_system.h"

namespace torchps {

// The answer to calls that the end of the coordinator interrupts.
absl::Status CoordinatorIsShuttingDown();

// Stores the model files that workers upload (StoreModel in proto/coordinator.proto).
// MODEL_CONSTANTS is stored in the coordinator's directory, `directory`. The other files are stored
// in `model_directory`, which may be a different one. The store's thread writes the files. Each
// file appears under the final name only after it was written completely, read back and synced to
// disk. Each slot uploads to a separate temporary file, so slots that evaluate at the same time do
// not collide. An upload replaces best.safetensors only if the score in the metadata is higher.
//
// If a worker dies during an upload, the temporary file remains until the same slot uploads the
// file again or the next ModelStore for the directory is created.
//
// Thread-safe. Calls `answer` on the store's thread, or on the calling thread during and after
// Stop().
class ModelStore {
 public:
  using Answer = std::function<void(const absl::StatusOr<StoreModelReply>& reply)>;

  // `files` must outlive this. Both directories must exist. `stored` may be null. It is called on
  // the store's thread with the name of each new file in `directory`.
  ModelStore(FileSystem* files, std::string directory, std::string model_directory,
             std::function<void(const std::string& file)> stored = nullptr);
  ~ModelStore();

  // Answers all waiting and future calls with UNAVAILABLE. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Queues a piece. `answer` receives a status that StoreModel documents, once the piece is
  // written. REQUIRES: the slot is live.
  void Receive(StoreModelRequest piece, Answer answer) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Upload {
    Incarnation incarnation = 0;
    int64_t bytes = 0;
    std::unique_ptr<WritableFile> file;
  };
  using Key = std::pair<ModelFile, SlotId>;

  void Serve();
  absl::Status Write(const StoreModelRequest& piece);
  absl::Status Begin(const StoreModelRequest& piece, const std::string& temporary);
  // Verifies the completed upload and renames it to the final path.
  absl::Status Finish(const StoreModelRequest& piece, const std::string& temporary);
  const std::string& GetDirectory(ModelFile file) const;
  // Returns an empty string if `file` is not a known ModelFile.
  std::string MakePath(ModelFile file) const;
  std::string GetTemporary(const StoreModelRequest& piece) const;

  FileSystem* const files_;
  const std::string directory_;
  const std::string model_directory_;
  const std::function<void(const std::string& file)> stored_;
  std::map<Key, Upload> uploads_;  // used only by thread_

  Mutex mutex_;
  CondVar wakes_;
  std::deque<std::pair<StoreModelRequest, Answer>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
