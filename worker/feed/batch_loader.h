#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "data/dataset.h"
#include "worker/feed/batch_uploader.h"

namespace torchps {

// Fetches and augments the batches of training passes. Loader threads make batches ahead of the
// training thread, like the workers of torch.utils.data.DataLoader.
//
// The contents of a batch depend only on the pass, not on the number of threads. Each thread
// accounts for at most two finished batches, so memory is bounded. Several threads call the dataset
// and `augment` concurrently. Thread-compatible: one thread calls Expect() and Take().
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

  // The number of passes to give Expect().
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
  // Waits until the job of `pass` is made. Returns null if no thread began it.
  std::shared_ptr<Job> TakeJob(const Pass& pass) ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins uploading the next batch if it is made.
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
  // True until Take() begins uploading the batch it returns. The next batch must be uploaded behind
  // it.
  bool is_taking_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Returns the augmentation seed of a pass. It depends on the epoch and on the first sample's
// position in it, so all slots and processes compute the same seed. `seed` is the job's.
uint64_t AugmentSeed(uint64_t seed, int epoch, int64_t position);

}  // namespace torchps
