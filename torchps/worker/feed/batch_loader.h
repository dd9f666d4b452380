#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/mutex.h"
#include "torchps/data/dataset.h"

// PartsOfPass() and GetPart() split the samples of a pass among the replicas of a worker with
// several devices. Stateless.

namespace torchps {

// The samples that one replica computes, counted from the first sample of the pass.
struct PartOfPass {
  size_t begin = 0;
  size_t size = 0;
};

// Returns the number of replicas that compute a part of a pass; these are the replicas with the
// lowest numbers. Each part contains at least two samples if the pass does, because batch norm
// cannot train on one.
size_t PartsOfPass(size_t samples, size_t replicas);

// Returns the part of replica `replica`, counted from 0. Parts are equal; the first parts get one
// more sample each if a remainder is left.
PartOfPass GetPart(size_t samples, size_t replica, size_t replicas);

// Uploads batches from the host to a device while the device computes. Stage() moves a batch to
// memory that allows asynchronous copies. Begin() starts the copy, and work that uses the batch
// waits for it on the device.
//
//   loader   | make, Stage b1 | make, Stage b2 |
//   copy                 b0               b1               b2
//   compute                 | with b0          | with b1
//
// Only the next batch is copied ahead of time. Later ones wait in host memory.
//
// Thread-safe, except that Arrive() and EndPass() must be called by the thread that enqueues the
// device's work. All functions may throw torch's exceptions.
class BatchUploader {
 public:
  // Holds a batch that is being copied. May be destroyed at any time: the memory on the host and
  // the device stays allocated until the copy ends.
  struct Rising {
    Batch batch;
    // The end of the copy, for which Arrive() lets the device wait. Null if Arrive() makes the
    // copy.
    std::shared_ptr<const void> end;
  };

  virtual ~BatchUploader() = default;

  // Prepares a loader thread to call the other functions. May change the thread's current device.
  virtual void EnterThread() = 0;
  // Returns the same batch in memory that Begin() can copy from.
  virtual Batch Stage(Batch batch) = 0;
  // Begins copying a batch that Stage() returned. Does not block.
  virtual Rising Begin(Batch batch) = 0;
  // Returns the batch on the device, for work that the calling thread enqueues from now on.
  virtual Batch Arrive(Rising rising) = 0;
  // Called when all work that uses the latest batch from Arrive() is enqueued. Blocks while the
  // calling thread is several passes ahead of the device, because the enqueued batches would
  // otherwise fill the device memory.
  virtual void EndPass() = 0;
};

// Returns the samples at `indices`. Checks the batch, because the dataset may be user code.
// INVALID_ARGUMENT if a tensor does not have one row for each index; the message names the tensor.
// Other errors are the dataset's.
absl::StatusOr<Batch> FetchBatch(const Dataset& dataset, absl::Span<const int64_t> indices);

// Returns rows [begin, begin + size) of a batch. Shares the batch's memory.
Batch GetRows(const Batch& batch, int64_t begin, int64_t size);

// Fetches and augments the batches of training passes. Loader threads make batches ahead of the
// training thread, like the workers of torch.utils.data.DataLoader.
//
// The contents of a batch depend only on the pass, not on the number of threads. Only batches given
// to Expect() are made ahead: about two for each thread, which bounds the memory. Several threads
// call the dataset and `augment` concurrently. Thread-compatible: one thread calls Expect() and
// Take().
//
// If there is an uploader (`lift`), the loader stages each batch for upload. It uploads only the
// next batch ahead of time; later batches wait in host memory, because device memory is scarcer.
class BatchLoader {
 public:
  using Augment = std::function<Batch(Batch batch, at::Generator generator)>;

  // Identifies a batch.
  struct Pass {
    std::vector<int64_t> samples;
    uint64_t seed = 0;  // seeds the generator of `augment`

    friend bool operator==(const Pass& a, const Pass& b) {
      return a.seed == b.seed && a.samples == b.samples;
    }
  };

  // `augment` may be null. Without threads, Take() makes the batch on the calling thread. Borrows
  // `lift`; if it is null, batches stay in host memory.
  BatchLoader(std::shared_ptr<const Dataset> dataset, Augment augment, int threads,
              BatchUploader* lift = nullptr);
  // Blocks until the batches being made are finished.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The number of future passes that the caller should give to Expect().
  size_t ahead() const { return 2 * threads_.size(); }

  // Sets the passes that Take() will probably be called for, soonest first. Drops the batches of
  // other passes.
  void Expect(std::vector<Pass> passes);

  // Returns the batch of `pass`, expected or not. If there is an uploader, the batch is on the
  // device for work that the caller enqueues from now on. Errors and exceptions of the dataset,
  // `augment` and the uploader surface here, even if they occurred on a loader thread.
  absl::StatusOr<Batch> Take(const Pass& pass);

 private:
  struct Job;

  absl::StatusOr<Batch> Make(const Pass& pass) const;
  // Removes the job of `pass` from `jobs_` and waits until its batch is made. Returns null if no
  // thread began to make the batch.
  std::shared_ptr<Job> TakeJob(const Pass& pass) ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins uploading the first batch of `jobs_` if that batch is made.
  void RaiseNext() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes batches until the loader is destroyed.
  void Work();
  // Returns the first job that no thread began, or null.
  std::shared_ptr<Job> FirstWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Dataset> dataset_;
  const Augment augment_;
  BatchUploader* const lift_;

  Mutex mutex_;
  CondVar changed_;
  // In the expected order.
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  // True from the start of Take() until the upload of the returned batch has begun. The next batch
  // must be uploaded after that batch.
  bool is_taking_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Returns the augmentation seed of a pass. It depends on the epoch and on the first sample's
// position in it, so all slots and processes compute the same seed. `seed` is the job's.
uint64_t AugmentSeed(uint64_t seed, int epoch, int64_t position);

}  // namespace torchps
