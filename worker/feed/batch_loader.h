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

// Makes the batches of training passes: fetches the samples and augments them. With threads of its
// own it does so ahead of the thread that trains, as torch.utils.data.DataLoader's workers do.
//
// A batch depends on its pass alone, not on how many threads there are. At most two batches for
// each thread lie ready, so memory is bounded. The dataset and `augment` are then called by several
// threads at once. Thread-compatible: one thread calls Expect() and Take().
//
// With a lift they are made where that can copy them from, and the one that is taken next goes up
// to the device as soon as it is made. The others wait on the host: the device's memory is dearer.
class BatchLoader {
 public:
  using Augment = std::function<Batch(Batch batch, at::Generator generator)>;

  // What a batch is made of.
  struct Pass {
    std::vector<int64_t> samples;
    uint64_t seed = 0;  // of augment's generator

    friend bool operator==(const Pass& a, const Pass& b) {
      return a.seed == b.seed && a.samples == b.samples;
    }
  };

  // `augment` may be null. Without threads the caller of Take() makes its batch. Borrows `lift`;
  // null: batches stay where they are made.
  BatchLoader(std::shared_ptr<const Dataset> dataset, Augment augment, int threads,
              BatchUploader* lift = nullptr);
  // Waits for the batches that are being made.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // How many passes Expect() should be told of.
  size_t ahead() const { return 2 * threads_.size(); }

  // What Take() will probably be asked for, soonest first. What was made of other passes is
  // dropped.
  void Expect(std::vector<Pass> passes);

  // The batch of `pass`, expected or not; with a lift, for what the caller computes from now on.
  // Its error, or what the dataset, `augment` and the lift throw, reaches the caller here, in
  // whichever thread it arose.
  absl::StatusOr<Batch> Take(const Pass& pass);

 private:
  struct Job;

  absl::StatusOr<Batch> Make(const Pass& pass) const;
  // Waits for it. Null: no thread has begun the pass.
  std::shared_ptr<Job> TakeJob(const Pass& pass) ABSL_LOCKS_EXCLUDED(mutex_);
  // Begins the copy up of the batch that is taken next, if it is there.
  void RaiseNext() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes batches until the loader ends.
  void Work();
  // The first job that nobody has begun; null: none.
  std::shared_ptr<Job> FirstWaiting() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Dataset> dataset_;
  const Augment augment_;
  BatchUploader* const lift_;

  Mutex mutex_;
  CondVar changed_;
  // In the order in which they are expected.
  std::deque<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  // The pass that is taken has not begun to rise, and the next one rises behind it.
  bool is_taking_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// A pass's seed: of the first sample's place in its epoch, so that it does not matter which slot,
// or which process of one, takes it. `seed` is the job's.
uint64_t AugmentSeed(uint64_t seed, int epoch, int64_t position);

}  // namespace torchps
