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
#include "worker/feed/batch_uploader.h"

namespace torchps {

// A lift to a device made of host memory, whose copies end late: in their order, some with any of
// its calls, as a seed has it, and at the latest when somebody computes with them. A copy fills its
// destination when it begins, with what is no number and no class, and reads its source when it
// ends.
//
// Throws at what BatchUploader forbids: a batch that was not staged, a thread that was not entered.
class FakeLift final : public BatchUploader {
 public:
  // What has happened, for a test whose lift a worker owns.
  struct Counts {
    std::atomic<int> begun{0};
    std::atomic<int> arrived{0};
    std::atomic<int> passes{0};
    // Copies that were begun before the pass before theirs had ended.
    std::atomic<int> ahead{0};
    // Batches that had begun and not arrived.
    std::atomic<int> max_rising{0};
  };

  struct Options {
    uint64_t seed = 1;
    // Copy `fail_at`, counted from 0, throws as it begins.
    int fail_at = -1;
    // Outlives the lift.
    Counts* counts = nullptr;
  };

  explicit FakeLift(Options options);

  void EnterThread() override ABSL_LOCKS_EXCLUDED(mutex_);
  Batch Stage(Batch batch) override ABSL_LOCKS_EXCLUDED(mutex_);
  Rising Begin(Batch batch) override ABSL_LOCKS_EXCLUDED(mutex_);
  Batch Arrive(Rising rising) override ABSL_LOCKS_EXCLUDED(mutex_);
  void EndPass() override ABSL_LOCKS_EXCLUDED(mutex_);

  // Until so many copies were begun.
  void AwaitBegun(int copies) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Copy {
    std::vector<std::pair<torch::Tensor, torch::Tensor>> tensors;  // from, to
    bool ended = false;
  };

  void CheckThread() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Some copies end.
  void Pass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;

  Mutex mutex_;
  CondVar changed_;
  uint64_t random_ ABSL_GUARDED_BY(mutex_);
  std::set<std::thread::id> entered_ ABSL_GUARDED_BY(mutex_);
  // Kept, so that no other tensor is taken for one.
  std::vector<torch::Tensor> staged_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Copy>> under_way_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
