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
#include "torchps/common/mutex.h"
#include "torchps/worker/feed/batch_loader.h"

namespace torchps {

// Simulates an uploader to a device of host memory. Copies end late and in order. After some calls,
// drawn from a seed, the uploader ends some of its copies. Arrive() ends its batch's copy and all
// earlier ones. Copies first fill their destination with invalid numbers and classes, and read
// their source when they end.
//
// Throws if the caller breaks the BatchUploader contract: if a batch was not staged, or if a thread
// did not enter.
class FakeLift final : public BatchUploader {
 public:
  // Figures of the uploader, which a test can read although a worker owns the uploader.
  struct Counts {
    std::atomic<int> begun{0};
    std::atomic<int> arrived{0};
    std::atomic<int> passes{0};
    // Copies that began before the preceding pass ended.
    std::atomic<int> ahead{0};
    // Largest number of batches that were being uploaded at one time: after Begin() and before
    // Arrive().
    std::atomic<int> max_rising{0};
  };

  struct Options {
    uint64_t seed = 1;
    // Begin() throws for copy `fail_at`, counted from 0.
    int fail_at = -1;
    // Must outlive the uploader.
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
  // Ends as many copies as the seed decides.
  void Pass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;

  Mutex mutex_;
  CondVar changed_;
  uint64_t random_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> entered_ ABSL_GUARDED_BY(mutex_);
  // The staged tensors. They are kept alive, so that no later tensor can have the address of one.
  std::vector<torch::Tensor> staged_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Copy>> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
