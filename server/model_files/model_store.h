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
#include "common/ids.h"
#include "common/mutex.h"
#include "proto/coordinator.pb.h"
#include "storage/file_system.h"

namespace torchps {

// Keeps the files that workers make of the module (StoreModel in proto/coordinator.proto), on a
// thread of its own: constants in the coordinator's directory, models in a directory that may be
// another one. A file is under its name only when it is whole,
// read back and on the disk. Each slot's upload of a file has a temporary file of its own, so that
// two that evaluate at once do not meet; best.safetensors stays the one of the highest score in its
// metadata.
//
// An upload that ends before its last piece (the worker died) leaves its temporary file until the
// same slot begins again, or this object does.
//
// Thread-safe. Answers on its own thread.
class ModelStore {
 public:
  using Answer = std::function<void(const absl::StatusOr<StoreModelReply>& reply)>;

  // `files` outlives this. The directories exist. `stored` hears the name of each new file in
  // `directory`, on the store's thread; may be null.
  ModelStore(FileSystem* files, std::string directory, std::string model_directory,
             std::function<void(const std::string& file)> stored = nullptr);
  ~ModelStore();

  // Answers what waits, and all that is still to come, with UNAVAILABLE. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Writes a piece and answers; the statuses are those of StoreModel. The slot is a live one's.
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
  // The upload is whole: puts it in its place.
  absl::Status Finish(const StoreModelRequest& piece, const std::string& temporary);
  const std::string& GetDirectory(ModelFile file) const;
  // Empty for a number that names no file.
  std::string MakePath(ModelFile file) const;
  std::string GetTemporary(const StoreModelRequest& piece) const;

  FileSystem* const files_;
  const std::string directory_;
  const std::string model_directory_;
  const std::function<void(const std::string& file)> stored_;
  std::map<Key, Upload> uploads_;  // of the thread

  Mutex mutex_;
  CondVar wakes_;
  std::deque<std::pair<StoreModelRequest, Answer>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
