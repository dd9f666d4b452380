#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// The answer to calls that the end of the coordinator interrupts.
absl::Status CoordinatorIsShuttingDown();

// Limits of the model files of a job.
struct ModelLimits {
  // MODEL_FINAL and MODEL_BEST contain these tensors. MODEL_CONSTANTS contains none of them.
  ModelLayout layout;
  // As in JoinRequest: bytes of the module's state before the first forward pass; 0: unknown.
  int64_t state_bytes = 0;

  // Returns the maximum size of a model file. It protects the disk, so it is generous: a module may
  // create buffers in the forward pass.
  int64_t MaxFileBytes() const;
};

// Stores the model files that workers upload (StoreModel in torchps/proto/coordinator.proto).
// MODEL_CONSTANTS is stored in the coordinator's directory, `directory`. The other files are stored
// in `model_directory`, which may be a different one. The store's thread writes the files. Each
// file appears under the final name only after it was written completely, read back, compared with
// the job's limits and synced to disk. Each slot uploads to a separate temporary file, so slots
// that evaluate at the same time do not collide.
//
// A complete MODEL_BEST waits as best.safetensors.slot-K.ready for the evaluation report of its
// slot. PublishBest() puts the file in place if it has the reported score, and this score is higher
// than that of the previous file. So a worker cannot give a model a score that it does not report.
// The file waits because a worker that dies before the report loses the evaluation to another slot.
// It survives a restart of the coordinator, because the worker does not upload it again.
//
// Memory: Receive() keeps at most one waiting piece of a slot, and kMaxWaitingBytes of all slots.
//
// Thread-safe. Calls `answer` and `done` on the store's thread, or on the calling thread if the
// piece is refused at once, and during and after Stop().
class ModelStore {
 public:
  using Answer = std::function<void(const absl::StatusOr<StoreModelReply>& reply)>;
  using Done = std::function<void(const absl::Status& status)>;

  static constexpr int64_t kMaxPieceBytes = 4 << 20;
  static constexpr int64_t kMaxWaitingBytes = 64 << 20;

  struct Options {
    // Must outlive the store.
    FileSystem* files = nullptr;
    // Both must exist.
    std::string directory;
    std::string model_directory;
    // The job continues with the same incarnations, so models that wait for a report stay.
    bool continues = false;
    // Called on the store's thread with the name of each new file in `directory`. May be null.
    std::function<void(const std::string& file)> stored = nullptr;
  };

  explicit ModelStore(Options options);
  ~ModelStore();

  // Answers all waiting and future calls with UNAVAILABLE. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Queues a piece. `answer` receives a status that StoreModel documents, once the piece is
  // written. A piece replaces the waiting piece of the same slot. REQUIRES: the slot is live and
  // may upload this file.
  void Receive(std::shared_ptr<const StoreModelRequest> piece,
               std::shared_ptr<const ModelLimits> limits, Answer answer)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Queues the end of the slot's upload of MODEL_BEST, if there is one: puts the file in place, or
  // removes it if it does not have the best score. `score` is that of the slot's evaluation.
  // INVALID_ARGUMENT: the file has another score, and was removed. Other errors are the disk's, or
  // UNAVAILABLE after Stop().
  void PublishBest(SlotId slot, std::optional<double> score, Done done) ABSL_LOCKS_EXCLUDED(mutex_);

  // Queues the removal of all temporary files of the slot, because its incarnation has ended.
  void Forget(SlotId slot) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Upload {
    Incarnation incarnation = 0;
    int64_t bytes = 0;
    std::unique_ptr<WritableFile> file;  // null once the file is complete
  };
  using Key = std::pair<ModelFile, SlotId>;

  // A piece, or another task of the store's thread.
  struct Task {
    SlotId slot = -1;  // of a piece; -1 for another task
    int64_t bytes = 0;
    std::function<void()> run;
    std::function<void(const absl::Status& status)> refuse;  // instead of `run`
  };

  void Serve();
  // Refuses the task after Stop().
  void Add(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write(const StoreModelRequest& piece, const ModelLimits& limits);
  absl::Status Begin(const StoreModelRequest& piece, const ModelLimits& limits,
                     const std::string& temporary);
  // Verifies the completed upload and renames it to the final path, or to the one at which
  // MODEL_BEST waits.
  absl::Status Finish(const StoreModelRequest& piece, const ModelLimits& limits, Upload* upload,
                      const std::string& temporary);
  absl::Status PutInPlace(const std::string& from, ModelFile file);
  absl::Status Publish(SlotId slot, std::optional<double> score);
  void RemoveFilesOf(SlotId slot);
  const std::string& GetDirectory(ModelFile file) const;
  // Returns an empty string if `file` is not a known ModelFile.
  std::string MakePath(ModelFile file) const;
  std::string GetTemporary(ModelFile file, SlotId slot) const;
  // Returns the path at which the slot's MODEL_BEST waits for the report.
  std::string GetReady(SlotId slot) const;

  const Options options_;
  FileSystem* const files_;
  std::map<Key, Upload> uploads_;  // used only by thread_

  Mutex mutex_;
  CondVar wakes_;
  std::deque<Task> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
