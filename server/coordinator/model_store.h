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

// Stores the model files that workers upload (StoreModel in proto/coordinator.proto). Constants are
// stored in the coordinator's directory. Models are stored in `model_directory`, possibly
// elsewhere. The store's thread writes the files. Each file appears under the final name only after
// it was written completely, read back and synced to disk. Each slot uploads to a separate
// temporary file, so slots that evaluate at the same time do not collide. best.safetensors keeps
// the model with the highest score in the file metadata.
//
// If a worker dies during an upload, the temporary file remains until the same slot begins again or
// the store is created again.
//
// Thread-safe. Answers on the store's thread.
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

  // Writes a piece and answers with a status that StoreModel documents. REQUIRES: the slot is
  // alive.
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
