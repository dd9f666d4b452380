#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "worker/feed/batch_loader.h"

namespace torchps {

// Simulates an uploader to a device of host memory. Copies end late and in order: a seed decides
// which calls end some copies, and a computation ends the copies that it needs. A copy first fills
// the destination with invalid numbers and classes, and reads the source at the end.
//
// Throws if the caller breaks the BatchUploader contract: a batch that was not staged, or a thread
// that did not enter.
class FakeLift final : public BatchUploader {
 public:
  // Statistics for a test if a worker owns the uploader.
  struct Counts {
    std::atomic<int> begun{0};
    std::atomic<int> arrived{0};
    std::atomic<int> passes{0};
    // Copies that began before the preceding pass ended.
    std::atomic<int> ahead{0};
    // Maximum number of batches under way at a time.
    std::atomic<int> max_rising{0};
  };

  struct Options {
    uint64_t seed = 1;
    // Copy `fail_at`, counted from 0, throws at the start.
    int fail_at = -1;
    // Outlives the uploader.
    Counts* counts = nullptr;
  };

  explicit FakeLift(Options options);

  void EnterThread() override ABSL_LOCKS_EXCLUDED(mutex_);
  Batch Stage(Batch batch) override ABSL_LOCKS_EXCLUDED(mutex_);
  Rising Begin(Batch batch) override ABSL_LOCKS_EXCLUDED(mutex_);
  Batch Arrive(Rising rising) override ABSL_LOCKS_EXCLUDED(mutex_);
  void EndPass() override ABSL_LOCKS_EXCLUDED(mutex_);

  // Blocks until this many copies have begun.
  void AwaitBegun(int copies) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Copy {
    std::vector<std::pair<torch::Tensor, torch::Tensor>> tensors;  // from, to
    bool ended = false;
  };

  void CheckThread() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends some copies.
  void Pass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;

  Mutex mutex_;
  CondVar changed_;
  uint64_t random_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> entered_ ABSL_GUARDED_BY(mutex_);
  // Kept alive, so that another tensor cannot reuse the address.
  std::vector<torch::Tensor> staged_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Copy>> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
