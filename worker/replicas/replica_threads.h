#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace torchps {

// A thread for each replica, of which the first is the caller's own: torch keeps what belongs to a
// thread (its OpenMP team, the current device) from step to step.
//
// Thread-compatible: one thread calls Run().
class ReplicaThreads {
 public:
  // What a member does. Must not throw.
  using Work = std::function<void(size_t member)>;

  explicit ReplicaThreads(size_t members);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  // Calls work(i) on the thread of each member at once, and returns when all have ended.
  void Run(const Work& work);

 private:
  void Serve(size_t member);

  Mutex mutex_;
  CondVar changed_;
  const Work* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // Runs begun.
  uint64_t runs_ ABSL_GUARDED_BY(mutex_) = 0;
  // Members but the first that are at work.
  size_t busy_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace torchps
